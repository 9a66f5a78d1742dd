# SPDX-License-Identifier: Apache-2.0
"""Active tests of a node: before, between and after jobs."""
