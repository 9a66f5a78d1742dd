# SPDX-License-Identifier: Apache-2.0
"""Puts faults in, beneath the detector."""
