# SPDX-License-Identifier: Apache-2.0
"""The screening tests, one small file a family."""
