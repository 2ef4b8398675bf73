# SPDX-License-Identifier: GPL-2.0-only
"""Only for the C extension, which pyproject.toml cannot describe: it uses kmod's headers.

The extension keeps to Python's stable ABI, so one wheel serves every version from this one on.
"""

from setuptools import setup

setup(
    cffi_modules=["src/ndm_tcp/core_build.py:ffi"],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
