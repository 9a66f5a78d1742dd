# SPDX-License-Identifier: Apache-2.0
"""The command line: the only place that joins everything, one file a command."""
