# SPDX-License-Identifier: GPL-2.0-only
"""The BPF form of the module: verbs around its loader, bpf/ndm_bpf."""
