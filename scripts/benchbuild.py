"""What scripts/bench.py builds before it measures, and where: models, load generator and the backends to compare with."""

import subprocess
import sys
from pathlib import Path

import onnxruntime

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "internal" / "bench"
BUILD = ROOT / "build" / "bench"
MODELS = BUILD / "models"
LOADGEN = BUILD / "loadgen"
OTHERS = BUILD / "backends"  # nothing, python and onnxruntime
PYTHON = BUILD / "python-venv"  # for the stub of the Python backend


def build(contenders: list[str], models: list[str]) -> None:
    """Builds what is missing for some contenders and models; the tools cache or take a moment."""
    if models:
        build_models(models)
    run(["go", "-C", str(SOURCE), "build", "-o", str(LOADGEN), "./loadgen"])
    library = OTHERS / "nothing" / "libtriton_nothing.so"
    library.parent.mkdir(parents=True, exist_ok=True)
    run(
        ["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-fvisibility=hidden", "-fPIC", "-shared"]
        + ["-I", wrapper_folder(), "-o", str(library), *map(str, sorted((SOURCE / "nothing").glob("*.c")))]
    )
    if "python" in contenders:
        build_python()


def build_models(names: list[str]) -> None:
    """Makes models of internal/bench/models; all of them if there is no name."""
    run([sys.executable, str(SOURCE / "models" / "models.py"), str(MODELS), *names])


def wrapper_folder() -> str:
    """Where the header of ONNX Runtime's C API is: in the module of its Go wrapper."""
    command = ["go", "-C", str(ROOT), "list", "-m", "-f", "{{.Dir}}", "github.com/yalue/onnxruntime_go"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def build_python() -> None:
    """Puts Triton's Python backend together: the library, the stub for this Python, and an environment with the numpy
    that the stub needs."""
    server = next((ROOT / "build" / "venv").glob("lib/python3*/site-packages/pytriton/tritonserver"))
    stub = server / "python_backend_stubs" / f"{sys.version_info[0]}.{sys.version_info[1]}"
    folder = OTHERS / "python"
    folder.mkdir(parents=True, exist_ok=True)
    for file in (*(server / "backends" / "python").glob("*.*"), *stub.iterdir()):
        replace_link(folder / file.name, file)
    if not (PYTHON / "bin" / "python").exists():
        run([sys.executable, "-m", "venv", str(PYTHON)])
        pins = ["numpy==1.26.4", f"onnxruntime=={onnxruntime.__version__}"]
        run([str(PYTHON / "bin" / "pip"), "--disable-pip-version-check", "install", "--quiet", *pins])


def link_ort_backend(folder: Path) -> None:
    """Makes the folder of Triton's ONNX Runtime backend one of OTHERS, as the server wants it."""
    if not (folder / "libtriton_onnxruntime.so").exists():
        sys.exit(f"bench: --ort-backend {folder}: there is no libtriton_onnxruntime.so in it")
    OTHERS.mkdir(parents=True, exist_ok=True)
    replace_link(OTHERS / "onnxruntime", folder.resolve())


def replace_link(link: Path, to: Path) -> None:
    link.unlink(missing_ok=True)
    link.symlink_to(to)


def run(command: list[str]) -> None:
    print("+", *command, flush=True)
    try:
        subprocess.run(command, check=True)
    except FileNotFoundError:
        sys.exit(f"bench: {command[0]} is not installed")
    except subprocess.CalledProcessError as failure:
        sys.exit(f"bench: {command[0]} failed with exit code {failure.returncode}")
