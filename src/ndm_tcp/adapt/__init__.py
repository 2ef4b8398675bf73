# SPDX-License-Identifier: GPL-2.0-only
"""`ndm adapt`: captures of a user to a network that is better on their paths. Above all rooms."""
