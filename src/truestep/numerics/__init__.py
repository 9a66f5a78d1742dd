# SPDX-License-Identifier: Apache-2.0
"""Pure functions on arrays: bits, digests, comparison, exact arithmetic."""
