"""The table of docs/models.md, cell by cell: what it says runs runs right, what it says does not is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hf_folders import tiny_folder
from swiftsure import kernels
from swiftsure.engine.backend import RowBatch
from swiftsure.engine.cpu import CPUBackend
from swiftsure.engine.reference import ReferenceModel
from swiftsure.errors import UnsupportedModelError
from swiftsure.kernels import reference
from swiftsure.models.architectures import ARCHITECTURES
from swiftsure.models.catalogue import resolve
from swiftsure.models.model import open_model
from swiftsure.models.supported import FORMATS, Format, cell_name, runs
from tiny_models import TinyModel, spec_of_type

ROOT = Path(__file__).parents[2]
CELLS = [(name, form) for name in ARCHITECTURES for form in FORMATS]
TOKENS = np.random.default_rng(7).integers(0, 300, 64).astype(np.int32)


def written(architecture: str, form: Format, folder: Path) -> tuple[TinyModel, Path]:
    if form.container == "GGUF":
        model = TinyModel(spec_of_type(form.tensor_type, seed=21, architecture=architecture, for_files=True))
        return model, model.write_gguf(folder / "tiny.gguf")
    model = TinyModel(spec_of_type("F32", seed=21, architecture=architecture, for_files=True))
    return model, tiny_folder(model, folder / "tiny", form.tensor_type, norms=form.tensor_type)


@pytest.mark.parametrize(("architecture", "form"), CELLS, ids=[cell_name(*cell) for cell in CELLS])
def test_every_cell_of_the_table_is_true(architecture: str, form: Format, tmp_path: Path) -> None:
    _, path = written(architecture, form, tmp_path)
    if not runs(architecture, form):
        with pytest.raises(UnsupportedModelError):
            open_model(resolve(path))
        return
    with open_model(resolve(path)) as model:
        assert model.architecture == architecture
        infos = [model.tensors.info(name) for name in model.tensors.names()]
        assert {info.type for info in infos if len(info.shape) > 1} == {form.tensor_type}
        truth = ReferenceModel(model.schedule(), model.tensors).logits(TOKENS)
        backend = CPUBackend(
            model.schedule(), model.tensors, isa=kernels.resolve_isa(None), threads=2, kv_blocks=2, max_rows=64, max_logit_rows=64
        )
        every = np.arange(len(TOKENS), dtype=np.int32)
        tables = np.arange(2, dtype=np.int32)[None]
        batch = RowBatch(tokens=TOKENS, positions=every, sequences=np.zeros_like(every), block_tables=tables, logit_rows=every)
        assert reference.relative_l2(backend.run(batch), truth) < 1e-3
        backend.close()


def test_the_page_of_models_is_up_to_date() -> None:
    subprocess.run([sys.executable, str(ROOT / "docs" / "generate_models.py"), "--check"], check=True)
