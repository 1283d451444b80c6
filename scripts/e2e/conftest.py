"""Fixtures for tests that start the real tritonserver."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from onnx import ModelProto
from tritonclient.grpc import InferenceServerClient

import tritonserver
from configs import under
from tritonserver import ServerError, TritonServer


@dataclass(frozen=True)
class Folder:
    """A model's folder in a repository: its configuration and its ONNX model, of which None leaves one out, and further
    files by their path in it."""

    config: str | None
    onnx: ModelProto | bytes | Callable[[], ModelProto] | None = None
    files: dict[str, bytes] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        version = path / "1"
        version.mkdir(parents=True)
        if self.config is not None:
            (path / "config.pbtxt").write_text(self.config)
        content = self.onnx() if callable(self.onnx) else self.onnx
        if isinstance(content, ModelProto):
            content = content.SerializeToString()
        if content is not None:
            (version / "model.onnx").write_bytes(content)
        for name, data in self.files.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(data)


@pytest.fixture(scope="session", autouse=True)
def _stopped_by_sigterm() -> None:
    """Lets the fixtures stop their servers when the tests are told to end."""
    tritonserver.exit_on_sigterm()


@pytest.fixture(scope="session")
def server() -> Iterator[TritonServer]:
    """One server with the example models, for all tests that leave it as it is."""
    with TritonServer() as server:
        yield server


@pytest.fixture(scope="module")
def own_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """One server with the models of the test's module, its MODELS. A model that does not load fails its tests alone.

    If the module has SCHEDULERS, the server has each model with each of them in the place of oldest().
    """
    repository = tmp_path_factory.mktemp("repository")
    for scheduler in getattr(request.module, "SCHEDULERS", ["oldest"]):
        for name, folder in request.module.MODELS.items():
            config = folder.config
            if config is not None and scheduler != "oldest":
                config = under(config, scheduler)
                if config == folder.config:
                    continue
            replace(folder, config=config).write(repository / variant(name, scheduler))
    # Sequences that tests leave open need not be waited for.
    options = ["--exit-on-error=false", "--strict-readiness=false", "--exit-timeout-secs=1"]
    with TritonServer(repository, options=options) as server:
        yield server


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Has the tests of a module run with each of its SCHEDULERS, or those that the mark schedulers names."""
    schedulers = getattr(metafunc.module, "SCHEDULERS", None)
    if schedulers and "scheduler" in metafunc.fixturenames:
        only = metafunc.definition.get_closest_marker("schedulers")
        metafunc.parametrize("scheduler", only.args if only else schedulers, indirect=True, scope="module")


@pytest.fixture(scope="module")
def scheduler(request: pytest.FixtureRequest) -> str:
    """The scheduler of the models of a test."""
    return getattr(request, "param", "oldest")


def variant(model: str, scheduler: str) -> str:
    """What the server calls a model with that scheduler."""
    return model if scheduler == "oldest" else f"{model}_under_{scheduler}"


class Client(InferenceServerClient):
    """A client of the models with one scheduler, which it is told by the names that they have with oldest."""

    def __init__(self, url: str, models: dict[str, Folder], scheduler: str):
        super().__init__(url)
        self.models, self.scheduler = models, scheduler

    def served(self, model: str) -> str:
        """What the server calls a model."""
        config = self.models[model].config
        if self.scheduler != "oldest" and config is not None and under(config, self.scheduler) == config:
            pytest.skip(f"{model} has a scheduler of its own, or states that only oldest and direct have")
        return variant(model, self.scheduler)

    def infer(self, model_name: str, *arguments, **named):
        return super().infer(self.served(model_name), *arguments, **named)

    def async_infer(self, model_name: str, *arguments, **named):
        return super().async_infer(self.served(model_name), *arguments, **named)

    def async_stream_infer(self, model_name: str, *arguments, **named):
        return super().async_stream_infer(self.served(model_name), *arguments, **named)

    def get_inference_statistics(self, model_name: str, *arguments, **named):
        return super().get_inference_statistics(self.served(model_name), *arguments, **named)

    def is_model_ready(self, model_name: str, *arguments, **named):
        return super().is_model_ready(self.served(model_name), *arguments, **named)


@pytest.fixture(scope="module")
def own_client(request: pytest.FixtureRequest, own_server: TritonServer, scheduler: str) -> Iterator[InferenceServerClient]:
    """A client of the module's server; of its models with the test's scheduler, if the module has SCHEDULERS."""
    if hasattr(request.module, "SCHEDULERS"):
        client = Client(own_server.grpc_url, request.module.MODELS, scheduler)
    else:
        client = InferenceServerClient(own_server.grpc_url)
    with client:
        yield client


@pytest.fixture(scope="session")
def refusal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, Folder], str]]:
    """Has a server load a model that it must refuse: refusal("name", Folder(config, onnx)) is what it says."""
    repository = tmp_path_factory.mktemp("refused")
    with TritonServer(repository, explicit=True) as server:

        def load(name: str, folder: Folder) -> str:
            folder.write(repository / name)
            with pytest.raises(ServerError) as refused:
                server.load(name)
            return str(refused.value)

        yield load


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., TritonServer]]:
    """Starts servers of the test's own: serve({"name": Folder(config, onnx)}, explicit=True).

    Further arguments are those of TritonServer. The servers end with the test.
    """
    with ExitStack() as stack:

        def start(models: dict[str, Folder], **arguments) -> TritonServer:
            repository = tmp_path / f"repository-{len(list(tmp_path.glob('repository-*')))}"
            repository.mkdir()
            for name, folder in models.items():
                folder.write(repository / name)
            return stack.enter_context(TritonServer(repository, **arguments))

        yield start


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    """Shows, with a failed test, the end of the log of every server that still runs."""
    report = yield
    if report.failed:
        for running in tritonserver.running():
            report.sections.append((f"end of {running.log}", running.log_tail()))
    return report
