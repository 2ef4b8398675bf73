# SPDX-License-Identifier: GPL-2.0-only
"""Only for the C extension, which pyproject.toml cannot describe: it uses kmod's headers."""

from setuptools import setup

setup(cffi_modules=["src/ndm_tcp/core_build.py:ffi"])
