# SPDX-License-Identifier: Apache-2.0
"""What models are trained on, and the models."""
