"""What the program needs around it: network access, and how it is started."""

from __future__ import annotations

import ast

from crucible.analysis.conclusions.facts import Seen
from crucible.analysis.values.facts import Call
from crucible.analysis.values.values import settled
from crucible.core.routing.profile import Conclusion, Confidence, Entrypoint

_NETWORK_ROOTS = (
    "requests.",
    "urllib.request.",
    "httpx.",
    "boto3.",
    "wandb.",
    "huggingface_hub.",
    "gdown.",
    "kagglehub.",
    "aiohttp.",
    "openai.",
    "google.cloud.",
    "s3fs.",
    "gcsfs.",
    "comet_ml.",
    "neptune.",
    "mlflow.",
    "kaggle.",
)
_ROOTS = (
    *_NETWORK_ROOTS,
    "sklearn.datasets.fetch_",
    "keras.datasets.",
    "keras.applications.",
    "torchvision.models.",
    "timm.",
)
_FETCHES = frozenset(
    {
        "keras.utils.get_file",
        "torch.hub.load",
        "tensorflow_datasets.load",
        "tensorflow_datasets.builder",
        "transformers.pipeline",
        "sentence_transformers.SentenceTransformer",
        "vllm.LLM",
        "datasets.load_dataset",
        "torch.hub.load_state_dict_from_url",
        "sklearn.datasets.fetch_openml",
        "tensorflow_hub.load",
        "tensorflow_hub.KerasLayer",
        "evaluate.load",
        "nltk.download",
        "gymnasium.make_vec_remote",
    }
)
_SERVES = frozenset(
    {
        "uvicorn.run",
        "flask.Flask.run",
        "gradio.Interface.launch",
        "gradio.Blocks.launch",
        "waitress.serve",
        "aiohttp.web.run_app",
        "tornado.ioloop.IOLoop.current.start",
    }
)


_READERS = ("read_csv", "read_parquet", "read_json", "read_table", "read_excel", "read_images", "read_text")
_ELSEWHERE = ("http://", "https://", "s3://", "gs://", "hdfs://", "hf://", "abfs://")


def network(seen: Seen) -> Conclusion[bool]:
    """Return whether the program needs network access."""
    found = [call for call in seen.calls_where(_may_reach_out, ("download",)) if _reaches_out(call)]
    if found:
        sure = Confidence.HIGH if any(call.certain for call in found) else Confidence.MEDIUM
        return seen.say(True, (call.where for call in found), sure, f"{found[0].path} uses the network.")
    return seen.say(False, (), Confidence.MEDIUM)


def _may_reach_out(path: str) -> bool:
    """Return whether calls of this path may use the network, depending on their arguments."""
    return path in _FETCHES or path.startswith(_ROOTS) or path.endswith(("from_pretrained", "from_preset", *_READERS))


def _reaches_out(call: Call) -> bool:
    """Return whether this call uses the network."""
    if call.path in _FETCHES or call.path.startswith(_NETWORK_ROOTS):
        return True
    if call.last in _READERS:
        name = settled(call.args[0]) if call.args else None
        return isinstance(name, str) and name.startswith(_ELSEWHERE)
    if call.last in ("from_pretrained", "from_preset"):
        name = call.args[0] if call.args else None
        return not (isinstance(name, str) and name.startswith((".", "/")))
    if call.path.startswith("sklearn.datasets.fetch_") or (
        call.path.startswith("keras.datasets.") and call.last == "load_data"
    ):
        return True
    if call.path.startswith("keras.applications."):
        return call.kwargs.get("weights", "imagenet") == "imagenet" and call.last[:1].isupper()
    weights = call.kwargs.get("weights", call.kwargs.get("pretrained"))
    if call.path.startswith(("torchvision.models.", "timm.")):
        return weights not in (None, False)
    return call.kwargs.get("download") is True


def entrypoint(seen: Seen) -> Conclusion[Entrypoint]:
    """Return how the program is started: as a notebook, service, script or module."""
    name = seen.machine.sources.entry
    if name.endswith(".ipynb"):
        return seen.say(Entrypoint.NOTEBOOK)
    serving = [call.where for call in seen.calls_among(_SERVES)]
    if serving:
        return seen.say(Entrypoint.SERVICE, serving)
    acts = [node for node in seen.machine.tree(name).body if _acts(node)]
    if acts:
        return seen.say(Entrypoint.SCRIPT, [(name, acts[-1].lineno)])
    return seen.say(Entrypoint.MODULE, (), Confidence.MEDIUM, "It only has definitions.")


def _acts(node: ast.stmt) -> bool:
    """Return whether running the statement does more than define something."""
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call | ast.Await):
            return True
        if isinstance(each, ast.For | ast.While | ast.With):
            return True
        if isinstance(each, ast.If):
            waiting += [*each.body, *each.orelse]
    return False
