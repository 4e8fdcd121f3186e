from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from crucible.core.errors import Conflict, UnknownName
from crucible.templates import catalog, copy_to, get, names, templates

NOT_PART = {"template.toml", "ruff.toml"}


def module_of(name: str) -> ModuleType:
    """A module of the nanoGPT template that needs no torch."""
    spec = importlib.util.spec_from_file_location(f"nanogpt_{name}", get("nanogpt").folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_nanogpt_is_listed() -> None:
    assert "nanogpt" in names()
    assert [template.name for template in templates()] == list(names())


@pytest.mark.parametrize("name", names())
def test_a_template_lists_exactly_the_files_of_its_folder(name: str) -> None:
    template = get(name)
    found = {
        path.relative_to(template.folder).as_posix()
        for path in template.folder.rglob("*")
        if path.is_file() and not {"__pycache__", ".ruff_cache"} & set(path.parts)
    }
    assert set(template.files) == found - NOT_PART


@pytest.mark.parametrize("name", names())
def test_a_template_says_what_it_is_and_how_it_runs(name: str) -> None:
    template = get(name)
    assert template.title
    assert template.description
    assert template.entry in template.files
    assert template.entry in template.command
    assert template.presets


def test_an_unknown_template_gets_a_suggestion() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'nanogpt'") as caught:
        get("nanogtp")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", ["", ".", "..", "nanogpt/..", "../templates/nanogpt"])
def test_a_name_is_no_path(name: str) -> None:
    with pytest.raises(UnknownName):
        get(name)


def test_a_copy_is_byte_for_byte(tmp_path: Path) -> None:
    written = copy_to("nanogpt", tmp_path / "new" / "folder")
    template = get("nanogpt")
    assert [path.relative_to(tmp_path / "new" / "folder").as_posix() for path in written] == list(template.files)
    assert all(path.read_bytes() == (template.folder / path.name).read_bytes() for path in written)


def test_a_copy_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("mine")
    with pytest.raises(Conflict, match=r"train\.py"):
        copy_to("nanogpt", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]
    assert (tmp_path / "train.py").read_text() == "mine"


def test_torch_is_pinned_to_one_version() -> None:
    assert "torch==2.13.0" in get("nanogpt").requirements


def test_reading_the_catalog_imports_nothing_of_a_template() -> None:
    program = (
        "import sys; from crucible.templates import templates; templates();"
        "print([name for name in sys.modules if name.startswith(('torch', 'crucible.templates.'))])"
    )
    output = subprocess.check_output([sys.executable, "-c", program], text=True, timeout=60)
    assert output.strip() == "['crucible.templates.catalog']"


def test_the_presets_of_the_catalog_are_those_of_the_script() -> None:
    presets = module_of("config").PRESETS
    assert [preset.name for preset in get("nanogpt").presets] == list(presets)


def test_gpu_small_is_sized_as_documented() -> None:
    config = module_of("config").PRESETS["gpu-small"]
    assert (config.layers, config.heads, config.width) == (12, 12, 768)
    assert config.accumulate > 1
    assert config.checkpoint_every == 1000


def test_the_text_is_what_its_script_writes() -> None:
    text = (get("nanogpt").folder / "text.txt").read_text(encoding="utf-8")
    assert text == module_of("make_text").make_text()
    assert 60_000 < len(text) < 100_000


def test_every_template_lies_beside_the_catalog() -> None:
    assert all(template.folder.parent == catalog.HERE for template in templates())
