# SPDX-License-Identifier: Apache-2.0
"""From observations to a verdict, or to the next experiment. Pure."""
