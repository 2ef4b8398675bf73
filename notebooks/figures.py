# SPDX-License-Identifier: GPL-2.0-only
"""What the notebooks share: which run and data they look at, and how their figures look.

`NDM_RUN` (a training run), `NDM_DATA` (dataset folders, separated by `:`) and `NDM_CAPTURE` choose
others than the shipped ones; `NDM_OUT` is where runs of the lab are kept. Figures
are saved in `RUN/plots` too.
"""

import json
import os
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch

from ndm_tcp import contract, files
from ndm_tcp.datasets.store import store
from ndm_tcp.errors import NdmError
from ndm_tcp.export.judge import judge
from ndm_tcp.plots import (  # noqa: F401  (the notebooks' palette)
    BLACK,
    BLUE,
    CC,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    RED,
    SKY,
    STYLE,
    YELLOW,
)
from ndm_tcp.training.checkpoint import MODEL, load_policy
from ndm_tcp.training.config import RESULTS
from ndm_tcp.training.experiments.ablation import GROUPS, kind_of

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / os.environ.get("NDM_OUT", "out")
RUN = ROOT / os.environ.get("NDM_RUN", "out/shipped/run")
PLOTS = RUN / "plots"
ABLATION = ROOT / "docs" / "ablation.json"

OTHER = "captures"
DIVERGING, SEQUENTIAL = "PuOr_r", "cividis"
NAMES = [i.name for i in contract.DENSE]
LABELS = [f"{i.index} {i.name}" for i in contract.DENSE]
DELAY = [i.name for i in contract.DENSE if {i.name, i.of} & {"rtt_variation", "rtt_gradient"}]

torch.set_num_threads(1)
mpl.rcParams.update({**STYLE, "figure.dpi": 80, "figure.constrained_layout.use": True})


def data_folders():
    """The datasets that the run was trained on, in the order of `make shipped`."""
    named = os.environ.get("NDM_DATA")
    if named:
        return [ROOT / part for part in named.split(":")]
    built = [ROOT / "out" / "shipped" / "data"]
    found = [p for p in built if p.is_dir()]
    rounds = (ROOT / "datasets" / "lab-rounds").glob("*/dataset.json")
    return found + sorted(p.parent for p in rounds)


def _results():
    """What the run's training left of itself; empty: nothing."""
    return json.loads((RUN / RESULTS).read_text()) if (RUN / RESULTS).is_file() else {}


def network():
    """(policy, checkpoint) of the run; prints which, and whether it beats a constant window."""
    policy, checkpoint = load_policy(RUN)
    results = _results()
    # A rebuilt run has other bytes than the one that it stands for, and the same integers.
    print(f"checkpoint {(results.get('checkpoint') or files.sha256(RUN / MODEL))[:16]}")
    print(f"on held-out paths: {judge(RUN).text}")
    return policy, checkpoint


def load():
    """(policy, checkpoint, rounds as a table) of the run; says if the data are not the run's."""
    policy, checkpoint = network()
    folders = data_folders()
    if not folders:
        raise NdmError("no dataset: run make shipped-run, or set NDM_DATA")
    dataset = store.load_all(folders)
    config = checkpoint.config
    print(f"{config.objective}, hidden {list(config.hidden)}, seed {config.seed}")
    if dataset.sha256 != checkpoint.dataset_sha256:
        print("the network was trained on other data than these")
    return policy, checkpoint, dataset.rounds


def kept_epoch(curves):
    """The epoch whose weights were kept, from 1; 0: those that the training started from."""
    return _results().get("epoch", int(np.argmin(curves["val_loss"])) + 1)


def held_out_chose():
    """Did held-out rounds choose the epoch? Else those that trained."""
    return _results().get("epoch_chosen_by", "val") == "val"


def kinds(sources):
    """What a path is like, from the names of recordings; `other` for foreign captures."""
    return np.array([kind_of(name.partition("--")[0]) or "other" for name in sources])


def families(kind):
    """The family of each path, by `ablation.GROUPS`; `OTHER` for the rest."""
    of = {name: group for group, names in GROUPS.items() for name in names}
    return np.array([of.get(name, OTHER) for name in kind])


def text_column(table, name):
    """[n] strings of a column, empty for null; fast for few different values."""
    column = table[name].unify_dictionaries().combine_chunks()
    words = np.array([w or "" for w in column.dictionary.to_pylist()] + [""])
    return words[column.indices.fill_null(len(words) - 1).to_numpy(zero_copy_only=False)]


def outputs(policy, x):
    """[n, 2] outputs of the network: gain (log2) and logit."""
    with torch.no_grad():
        return policy.act(torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))).numpy()


def probability(logit):
    """Of congestion."""
    return 1 / (1 + np.exp(-np.asarray(logit, dtype=float)))


def save(figure, name):
    """Keep a figure beside the run too."""
    PLOTS.mkdir(exist_ok=True)
    figure.savefig(PLOTS / f"{name}.png")
