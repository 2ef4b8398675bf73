# SPDX-License-Identifier: GPL-2.0-only
"""The contract and its tables as C: `kmod/generated/ndm_contract.h` and `ndm_tables.h`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ndm_tcp import contract as c
from ndm_tcp import files, fixedpoint

MARKER = "Do not edit directly, auto-generated from:"


def preamble(sources: Sequence[str], notes: Sequence[str] = ()) -> str:
    """SPDX line, marker, sources and notes of a generated header; no date, no path, no user."""
    lines = ["/* SPDX-License-Identifier: GPL-2.0-only */", f"/* {MARKER} */"]
    lines += [f"/*\t{source} */" for source in sources]
    lines.append(f"/* contract {c.HASH} */")
    if notes:
        lines += ["/*", *(f" * {note}".rstrip() for note in notes), " */"]
    return "\n".join(lines) + "\n"


def table(ctype: str, name: str, values: Sequence[int], comment: str) -> str:
    """A `static const` array, eight values a row."""
    rows = [values[i : i + 8] for i in range(0, len(values), 8)]
    body = "\n".join("\t" + ", ".join(str(v) for v in row) + "," for row in rows)
    return f"/* {comment} */\nstatic const {ctype} {name}[{len(values)}] = {{\n{body}\n}};\n"


def contract_header() -> str:
    """Enums, clamps, constants and the per-ACK record."""
    parts = [preamble(["src/ndm_tcp/contract.py"])]
    parts.append('#ifndef _NDM_CONTRACT_H\n#define _NDM_CONTRACT_H\n\n#include "../ndm_types.h"\n')
    parts.append(
        f'#define NDM_CONTRACT_HASH\t"{c.HASH}"\n#define NDM_CONTRACT_ID\t\t0x{c.HASH}ULL\n'
    )
    lines = [f"#define NDM_{name}\t{value}" for name, value in c.constants().items()]
    parts.append("\n".join([*lines, "#define NDM_ONE\t(1 << NDM_Q_INPUT)"]) + "\n")
    lines = ["/* What the dense layers take, Q12; numbered from 1 everywhere but here. */"]
    lines.append("enum ndm_input {")
    for i in c.DENSE:
        lines.append(f"\t/* {i.index}: {i.meaning}; [{i.lo:g}, {i.hi:g}] */")
        lines.append(f"\tNDM_IN_{i.name.upper()},")
    parts.append("\n".join([*lines, "};"]) + "\n")
    remembered = [i.index - 1 for i in c.INPUTS if i.name in c.MEMORY.of]
    text = "The inputs that the memory keeps means of, by enum ndm_input."
    parts.append(table("u8", "ndm_memory_of", remembered, text))
    lines = ["/* The two outputs, Q16. */", "enum ndm_output {"]
    for o in c.OUTPUTS:
        lines.append(f"\tNDM_OUT_{o.name.upper()},\t/* {o.meaning} */")
    lines.append("};\n")
    for o in c.OUTPUTS:
        lines.append(f"#define NDM_OUT_{o.name.upper()}_LO\t({o.lo_q})")
        lines.append(f"#define NDM_OUT_{o.name.upper()}_HI\t({o.hi_q})")
    parts.append("\n".join(lines) + "\n")
    lines = ["/* What an ACK tells; the same from the kernel and from a capture. */"]
    lines.append("struct ndm_ack {")
    lines += [f"\t{f.ctype} {f.name};\t/* {f.meaning} */" for f in c.ACK_FIELDS]
    parts.append("\n".join([*lines, "};"]) + "\n")
    parts.append(
        "static_assert(NDM_ENTROPY_LOSS_WEIGHT + NDM_ENTROPY_DELAY_WEIGHT == NDM_ONE,\n"
        '\t      "the entropy weights add to one");\n'
    )
    parts.append("#endif /* _NDM_CONTRACT_H */\n")
    return "\n".join(parts)


def tables_header() -> str:
    """tanh, 2**x and the entropy tables."""
    step = 1 << (c.TANH_STEPS_LOG2 - c.TANH_RANGE_LOG2)
    parts = [preamble(["src/ndm_tcp/fixedpoint.py"])]
    parts.append('#ifndef _NDM_TABLES_H\n#define _NDM_TABLES_H\n\n#include "../ndm_types.h"\n')
    parts.append(
        table(
            "s16",
            "ndm_tanh_table",
            fixedpoint.tanh_table(),
            f"tanh(i / {step}), Q15, for i / {step} in [0, {1 << c.TANH_RANGE_LOG2}]",
        )
    )
    parts.append(table("u32", "ndm_exp2_table", fixedpoint.exp2_table(), "2^(i / 32), Q16"))
    parts.append(table("u32", "ndm_log2_table", fixedpoint.log2_table(), "log2(i), Q16; 0 for 0"))
    parts.append(
        table("u32", "ndm_klog2k_step", fixedpoint.klog2k_steps(), "of i log2(i) to i + 1, Q16")
    )
    parts.append("#endif /* _NDM_TABLES_H */\n")
    return "\n".join(parts)


if __name__ == "__main__":
    # By itself, since the Python extension is compiled from these two.
    folder = Path(__file__).resolve().parents[2] / "kmod" / "generated"
    files.write_text(folder / "ndm_contract.h", contract_header())
    files.write_text(folder / "ndm_tables.h", tables_header())
