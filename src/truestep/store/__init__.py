# SPDX-License-Identifier: Apache-2.0
"""What is kept: the journal and its schema."""
