# SPDX-License-Identifier: Apache-2.0
"""The life of nodes: from their history to what is done to them, and the scheduler that does it."""
