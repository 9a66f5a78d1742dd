# SPDX-License-Identifier: Apache-2.0
"""What runs a computation on a device, and what is known of the device."""
