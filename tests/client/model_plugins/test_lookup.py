"""Plugins are asked about in a Python of their own: whatever they do, the others are listed."""

from __future__ import annotations

import os
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.harness import until
from tests.plugin_packages import COUNTER, HEAD, install, make_python

from crucible.client.model_plugins import Plugin, find_plugin, list_plugins
from crucible.core.errors import BadInput, UnknownName
from crucible.wire.models.plugins import AT_ONCE
from crucible.wire.models.subprocess_rpc import RpcError, SubprocessRpc
from crucible.wire.shim import write_shim

ENVIRON = {"PATH": os.environ["PATH"], "CRUCIBLE_TOKEN": "secret", "AWS_SECRET": "secret"}


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    make_python(tmp_path / "venv")
    return tmp_path / "venv"


@pytest.fixture
def site(venv: Path) -> Path:
    """The folder of its packages."""
    (packages,) = (venv / "lib").glob("*/site-packages")
    return packages


def python(venv: Path) -> str:
    return str(venv / "bin" / "python")


def found(venv: Path, seconds: float = 60) -> dict[str, Plugin]:
    return {plugin.name: plugin for plugin in list_plugins(python(venv), ENVIRON, seconds=seconds)}


def fault(plugin: Plugin) -> str:
    assert plugin.problem is not None
    return plugin.problem.text


def test_a_python_without_models_has_none(venv: Path, site: Path) -> None:
    assert list_plugins(python(venv), ENVIRON) == ()


def test_a_plugin_is_described_by_its_own_python(venv: Path, site: Path) -> None:
    package = install(site, "counting", COUNTER, {"counter": "counting:Counter"})
    (plugin,) = list_plugins(python(venv), ENVIRON)
    assert (plugin.name, plugin.entry, plugin.distribution) == ("counter", "counting:Counter", "counting")
    assert (plugin.version, plugin.framework, plugin.methods) == ("1.2", "none", ("train", "infer", "benchmark"))
    assert plugin.schema is not None
    assert plugin.schema["epochs"].maximum == 100
    assert plugin.package == package
    assert "counting" not in sys.modules
    assert find_plugin("counter", python(venv), ENVIRON) == plugin


def test_whatever_one_does_the_others_are_listed(venv: Path, site: Path) -> None:
    model = "class Model(BaseModel):\n    def infer(self, inputs): return 1\n"
    sick = {
        "raises": "import json\nraise RuntimeError('no luck')",
        "missing": "import no_such_module_at_all",
        "syntax": "def (:",
        "exits": "raise SystemExit(0)",
        "dies": "import os; os.kill(os.getpid(), 9)",
        "vanishes": "import os; os._exit(3)",
        "schema": f"{HEAD}class Model(BaseModel):\n    schema = {{'epochs': Option(int, default=0, minimum=1)}}\n",
        "table": f"{HEAD}{model}    schema = {{'epochs': 3}}\n",
        "nothing": f"{HEAD}class Model(BaseModel): pass\n",
        "number": "Model = 3",
    }
    for name, code in sick.items():
        install(site, name, code, {name: f"{name}:Model"})
    install(site, "absent", HEAD, {"absent": "absent:Model"})
    install(site, "counting", COUNTER, {"counter": "counting:Counter"})
    plugins = found(venv)
    assert [name for name, plugin in plugins.items() if plugin.problem is None] == ["counter"]
    assert fault(plugins["raises"]) == "RuntimeError: no luck"
    traceback = plugins["raises"].problem.traceback  # type: ignore[union-attr]
    assert traceback is not None
    assert f"{site}/raises/__init__.py" in traceback
    assert fault(plugins["missing"]).startswith("ModuleNotFoundError: No module named 'no_such_module_at_all'")
    assert "SyntaxError" in fault(plugins["syntax"])
    assert fault(plugins["exits"]) == "SystemExit: 0"
    assert fault(plugins["dies"]) == "signal 9 ended it"
    assert fault(plugins["vanishes"]) == "it ended with code 3 and no response"
    assert "the default must be at least 1, not 0" in fault(plugins["schema"])
    assert fault(plugins["table"]) == "table: the option 'epochs' is int, not an Option"
    assert fault(plugins["nothing"]) == "nothing: Model has none of train, infer, benchmark"
    assert fault(plugins["number"]) == "number: 3 is not a subclass of crucible.BaseModel"
    assert "has no attribute 'Model'" in fault(plugins["absent"])


def test_one_that_hangs_is_left_and_all_that_it_started_ended(venv: Path, site: Path, tmp_path: Path) -> None:
    mark = tmp_path / "child"
    hangs = f"""
import subprocess, sys, time
print("importing", flush=True)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open({str(mark)!r}, "w").write(str(child.pid))
time.sleep(600)
"""
    install(site, "hangs", hangs, {"hangs": "hangs:Model"})
    began = time.monotonic()
    plugin = found(venv, seconds=5)["hangs"]
    assert time.monotonic() - began < 30
    assert re.fullmatch(r"it did not answer within [\d.]+ seconds", fault(plugin))
    assert plugin.problem is not None
    assert plugin.problem.traceback == "importing"
    status = Path(f"/proc/{mark.read_text()}/stat")
    until(lambda: not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z", 10, "its child's end")


def test_however_many_hang_all_are_told_of_in_time_and_the_others_described(venv: Path, site: Path) -> None:
    names = [f"hangs{n}" for n in range(AT_ONCE + 1)]
    for name in names:
        install(site, name, "import time\ntime.sleep(600)", {name: f"{name}:Model"})
    install(site, "works", COUNTER, {"works": "works:Counter"})
    began = time.monotonic()
    plugins = found(venv, seconds=12)
    assert time.monotonic() - began < 20
    assert {name for name, plugin in plugins.items() if plugin.problem is not None} == set(names)
    assert plugins["works"].methods == ("train", "infer", "benchmark")


def test_whoever_asks_may_leave(venv: Path, site: Path, tmp_path: Path) -> None:
    """As Ctrl-C does: what hangs is ended, long before its deadline."""
    mark = tmp_path / "begun"
    code = f"import time\nopen({str(mark)!r}, 'w').close()\ntime.sleep(600)"
    install(site, "hangs", code, {"hangs": "hangs:Model"})
    write_shim(tmp_path / "shim")
    asker = SubprocessRpc(python(venv), tmp_path / "shim", ENVIRON)
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(asker.call, "--model", "hangs", seconds=600)
        until(mark.exists, what="the plugin")
        asker.cancelled.set()
        assert isinstance(asked.exception(timeout=30), RpcError)


def test_what_one_prints_is_not_its_answer(venv: Path, site: Path) -> None:
    noise = "import os, sys\nprint('{}' * 100)\nos.write(1, b'{\"v\": 1, \"model\": 3}')\nos.system('echo hello')\n"
    install(site, "noisy", noise + COUNTER, {"counter": "noisy:Counter"})
    assert found(venv)["counter"].problem is None


def test_one_that_leaves_a_thread_is_described_at_once(venv: Path, site: Path) -> None:
    code = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()\n" + COUNTER
    install(site, "busy", code, {"counter": "busy:Counter"})
    assert found(venv)["counter"].problem is None


def test_a_flood_is_bounded(venv: Path, site: Path) -> None:
    install(site, "flood", "print('x' * 50_000_000)\nraise RuntimeError('after it')", {"flood": "flood:Model"})
    big = COUNTER.replace("How far to count.", "x" * 2_000_000)
    install(site, "big", big, {"big": "big:Counter"})
    plugins = found(venv)
    assert fault(plugins["flood"]) == "RuntimeError: after it"
    assert fault(plugins["big"]) == "its description is larger than 1024 KiB"


def test_a_plugin_sees_no_secret_of_the_shell(venv: Path, site: Path) -> None:
    spy = "import os\nraise RuntimeError(sorted(name for name in os.environ if 'SECRET' in name or 'CRUCIBLE' in name))"
    install(site, "spy", spy, {"spy": "spy:Model"})
    assert fault(found(venv)["spy"]) == "RuntimeError: []"


def test_a_name_that_is_not_offered(venv: Path, site: Path) -> None:
    with pytest.raises(UnknownName, match=r"There is no model 'counter'. Known: none. .* was searched"):
        find_plugin("counter", python(venv), ENVIRON)
    install(site, "counting", COUNTER, {"counter": "counting:Counter"})
    with pytest.raises(UnknownName, match=r"Did you mean 'counter'?"):
        find_plugin("countr", python(venv), ENVIRON)


def test_a_name_that_two_packages_offer(venv: Path, site: Path) -> None:
    for name in ("one", "two"):
        install(site, name, COUNTER, {"counter": f"{name}:Counter"})
    with pytest.raises(BadInput, match=r"two packages define it: one .* and two "):
        find_plugin("counter", python(venv), ENVIRON)


def test_one_that_fails_is_refused_with_its_traceback(venv: Path, site: Path) -> None:
    install(site, "raises", "raise RuntimeError('no luck')", {"raises": "raises:Model"})
    with pytest.raises(BadInput) as error:
        find_plugin("raises", python(venv), ENVIRON)
    assert error.value.what == "The model 'raises' cannot be used: RuntimeError: no luck."
    assert "raises/__init__.py" in error.value.why
    assert "Repair raises 1.0" in error.value.fix


@pytest.mark.parametrize("program", ["/no/such/python", "/bin/true", "/bin/false"])
def test_a_python_that_is_none_cannot_be_asked(program: str) -> None:
    with pytest.raises(BadInput, match=f"The models of {program} cannot be listed"):
        list_plugins(program, ENVIRON)
