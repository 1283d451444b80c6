#!/usr/bin/env python3
"""Compiles internal/cuda/kernels/move.cu to move.ptx, with NVIDIA's compiler from PyPI.

    python3 scripts/make_ptx.py            # writes move.ptx
    python3 scripts/make_ptx.py --check    # compares it instead; exit status 1 if it differs
    python3 scripts/make_ptx.py --assemble # also assembles it for every GPU that the assembler knows

No GPU and no driver are needed. The compiler (90 MB) is installed to build/nvrtc,
the assembler (37 MB and more) to build/ptxas, once. --offline never installs:
exit status 3 says that the compiler is not at hand.
"""

import argparse
import ctypes
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
KERNELS = ROOT / "internal" / "cuda" / "kernels"
NVRTC = "nvidia-cuda-nvrtc==13.0.88"
PTXAS = "nvidia-cuda-nvcc==13.0.88"
NOT_AT_HAND = 3

# The oldest GPU that this compiler can compile for. The kernels need nothing
# newer than Pascal and a driver for CUDA 10.1, so the PTX is labelled so: with
# the compiler's own label, only drivers for CUDA 13 would take it.
ARCHITECTURE = "compute_75"
LABEL = {r"^\.version .*$": ".version 6.4", r"^\.target .*$": ".target sm_60"}
ASSEMBLE_FOR = ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"]


def install(requirement, folder, offline):
    """Returns the folder in which the package lies."""
    target = ROOT / "build" / folder
    if not target.exists():
        if offline:
            print(f"{requirement} is not installed in build/{folder}: run scripts/make_ptx.py once")
            sys.exit(NOT_AT_HAND)
        subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-deps",
                "--only-binary=:all:",
                "--target",
                str(target),
                requirement,
            ],
            check=True,
        )
    return target


def only(folder, pattern):
    found = sorted(folder.rglob(pattern))
    if len(found) != 1:
        sys.exit(f"{len(found)} files match {pattern} in {folder}: want one; delete the folder and run again")
    return found[0]


class Compiler:
    """NVRTC, by its C interface."""

    def __init__(self, folder):
        # It opens its second half by name: have that loaded already.
        self.builtins = ctypes.CDLL(str(only(folder, "libnvrtc-builtins.so.*")))
        self.nvrtc = ctypes.CDLL(str(only(folder, "libnvrtc.so.*")))

    def call(self, name, *arguments):
        code = getattr(self.nvrtc, name)(*arguments)
        if code != 0:
            sys.exit(f"{name} failed with code {code}")

    def text(self, program, what):
        size = ctypes.c_size_t()
        self.call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self.call(f"nvrtcGet{what}", program, buffer)
        return buffer.value.decode()

    def compile(self, source, headers):
        names = (ctypes.c_char_p * len(headers))(*[h.name.encode() for h in headers])
        texts = (ctypes.c_char_p * len(headers))(*[h.read_bytes() for h in headers])
        program = ctypes.c_void_p()
        self.call(
            "nvrtcCreateProgram", ctypes.byref(program), source.read_bytes(), source.name.encode(), len(headers), texts, names
        )
        options = [f"--gpu-architecture={ARCHITECTURE}".encode(), b"--std=c++17"]
        code = self.nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        if code != 0:
            sys.exit(self.text(program, "ProgramLog"))
        return self.text(program, "PTX")


def relabel(ptx):
    # The compiler's comments name its build: they would change for no reason. The
    # pragma is a hint for tools that only newer drivers understand.
    lines = [line for line in ptx.splitlines() if not re.match(r'//|\s*\.pragma "used_bytes_mask', line)]
    text = "\n".join(lines).strip() + "\n"
    for pattern, label in LABEL.items():
        text, count = re.subn(pattern, label, text, flags=re.MULTILINE)
        if count != 1:
            sys.exit(f"{pattern} occurs {count} times in the compiler's output: want once")
    return "// Made by scripts/make_ptx.py from move.cu.\n" + text


def assemble(path, offline):
    assembler = only(install(PTXAS, "ptxas", offline), "ptxas")
    assembler.chmod(0o755)
    with tempfile.TemporaryDirectory() as folder:
        for gpu in ASSEMBLE_FOR:
            result = subprocess.run(
                [str(assembler), "-v", f"-arch={gpu}", str(path), "-o", str(pathlib.Path(folder) / gpu)],
                capture_output=True,
                text=True,
                check=False,
            )
            if result.returncode != 0:
                sys.exit(f"{gpu}: {result.stderr}")
            used = re.findall(r"Used (\d+) registers", result.stderr)
            spilled = [n for n in re.findall(r"(\d+) bytes spill", result.stderr) if n != "0"]
            print(f"{gpu}: {' and '.join(used)} registers, {'spills' if spilled else 'no spills'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the committed PTX, write nothing")
    parser.add_argument("--assemble", action="store_true", help="also assemble it for every GPU")
    parser.add_argument("--offline", action="store_true", help="install nothing")
    options = parser.parse_args()
    path = KERNELS / "move.ptx"
    compiler = Compiler(install(NVRTC, "nvrtc", options.offline))
    made = relabel(compiler.compile(KERNELS / "move.cu", [KERNELS / "move.h"]))
    if not options.check:
        path.write_text(made)
    elif path.read_text() != made:
        sys.exit("internal/cuda/kernels/move.ptx is not what move.cu compiles to: run scripts/make_ptx.py")
    if options.assemble:
        assemble(path, options.offline)


if __name__ == "__main__":
    main()
