# SPDX-License-Identifier: GPL-2.0-only
"""Only for what pyproject.toml cannot say: the C extension is built from kmod's headers."""

from setuptools import setup

setup(cffi_modules=["src/ndm_tcp/core_build.py:ffi"])
