"""Plugin packages for tests, laid out as an installer leaves them, without running one."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

HEAD = "import crucible\nfrom crucible import BaseModel, ModelMetadata, Option\n"

COUNTER = f'''{HEAD}
class Counter(BaseModel):
    """Counts epochs and saves each as a file."""

    schema = {{
        "epochs": Option(int, default=3, minimum=1, maximum=100, help="How far to count."),
        "rate": Option(float, default=0.5, minimum=0, maximum=1),
        "mode": Option(str, default="up", choices=("up", "down")),
        "goal": Option(str, default=None),
        "suite": Option(str, default="synthetic", choices=("synthetic", "waa")),
    }}
    model_metadata = ModelMetadata(version="1.2", description="Counts.", framework="none", min_gpu_memory_gb=0)

    def prepare_dataloaders(self, dataset, config):
        return (dataset, config["rate"])

    def resume(self, path):
        self.resume_from = path
        print("resumed", path.name)

    def train(self, train_loader, val_loader, callbacks):
        for epoch in range(self.config["epochs"]):
            callbacks.on_epoch_end(epoch, {{"loss": 1 / (epoch + 1)}})
        return {{"data": str(train_loader and train_loader.name), "rate": val_loader, "epochs": self.config["epochs"]}}

    def infer(self, inputs):
        return {{"doubled": inputs["x"] * 2}}

    def benchmark(self):
        return {{"speed": 12.5, "suite": self.config["suite"]}}
'''


def install(folder: Path, name: str, code: str, entries: Mapping[str, str], version: str = "1.0") -> Path:
    """Puts a package `name` with this code into `folder`, offering these models; its own folder."""
    package = folder / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(code)
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = "".join(f"{model} = {value}\n" for model, value in entries.items())
    (info / "entry_points.txt").write_text(f"[crucible.models]\n{lines}")
    return package


def make_python(home: Path) -> Path:
    """A virtual environment with packages of its own, and without crucible-ml; the folder of its packages."""
    real = os.path.realpath(sys.executable)
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "python").symlink_to(real)
    (home / "pyvenv.cfg").write_text(f"home = {os.path.dirname(real)}\n")
    packages = home / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    packages.mkdir(parents=True)
    return packages
