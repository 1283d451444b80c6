#!/usr/bin/env bash
# Checks on a machine with an NVIDIA GPU what no other machine can check, and
# prints a table. Run it after go run build.go:
#
#     scripts/gpu_check.sh [--ort FILE]
#
# FILE is ONNX Runtime's build for GPUs: libonnxruntime.so with its providers
# next to it, or the wheel onnxruntime_gpu-*.whl that has them (docs/gpu.md). The
# libraries of CUDA, cuDNN and TensorRT must be where the dynamic linker finds
# them: in the system, or in LD_LIBRARY_PATH.
#
# It needs Go, gcc and Python. What a line of the table needs and does not find, the
# line says; it has not passed then. Each takes at most two minutes. The exit
# status is 0 if all lines are ok, 1 if not, and 2 if nothing could be begun. The
# whole output is kept in build/gpu_check.
set -u -o pipefail
cd "$(dirname "$0")/.." || exit 2

usage() {
  sed -n '2,/^set /{/^# \{0,1\}/s///p}' scripts/gpu_check.sh
}

ort=${STATEFUL_ORT_LIB:-}
while [ $# -gt 0 ]; do
  case $1 in
  --ort) ort=${2:-} && shift ;;
  -h | --help) usage && exit 0 ;;
  *) echo "unknown argument $1: want --ort FILE, or --help" >&2 && exit 2 ;;
  esac
  shift
done

out=$PWD/build/gpu_check
mkdir -p "$out"
table=$out/table.txt
: >"$table"
bad=0

if ! driver=$(python3 -c 'import ctypes; ctypes.CDLL("libcuda.so.1")' 2>&1); then
  echo "no CUDA driver: $(tail -1 <<<"$driver")" >&2
  echo "install NVIDIA's driver, and in a container start it with the GPUs (docker run --gpus all)" >&2
  exit 2
fi

case $ort in
*.whl)
  rm -rf "$out/ort" && mkdir -p "$out/ort"
  python3 -m zipfile -e "$ort" "$out/ort" || exit 2
  mv "$out"/ort/onnxruntime/capi/libonnxruntime* "$out/ort/" || exit 2
  ort=$(echo "$out"/ort/libonnxruntime.so.*)
  ;;
esac
if [ -n "$ort" ]; then
  [ -f "$ort" ] || { echo "--ort: there is no file $ort" >&2 && exit 2; }
  ort=$(realpath "$ort")
fi

# Compiling is not what is checked, and may take longer than a line.
echo "compiling the tests"
for package in internal/devicememory ortrunner internal/gpuinfo; do
  go test -c -o "$out/$(basename $package).test" "./$package" || exit 2
done

# line NAME COMMAND...: runs the command, and adds to the table how it ended and the
# last thing that it said after "result:", or else what seems to be the cause.
line() {
  local name=$1 log="$out/${1//[ :,]/_}.log" state=ok said
  shift
  local begin=$SECONDS
  timeout 120 bash -c 'set -u -o pipefail; "$@"' line "$@" >"$log" 2>&1
  local code=$?
  if [ $code -eq 124 ]; then state="over 120 s"; elif [ $code -ne 0 ]; then state=FAILED; fi
  said=$(grep -o 'result: .*' "$log" | tail -1 | cut -c9-)
  if grep -q -- '--- SKIP' "$log"; then
    state="not run"
    said=$(grep -o -- '--- SKIP: .*' "$log" | tail -1 | cut -c11-)
  fi
  [ "$state" = ok ] || bad=1
  if [ -z "$said" ] && [ "$state" != ok ]; then
    said=$(grep -A1 'Received unexpected error:' "$log" | sed -n '2p')
    [ -n "$said" ] || said=$(grep -m1 -E ': command not found|cannot stat|panic:|Not equal|Error: ' "$log")
    said=$(sed -E 's/^[[:space:]]*//; s|/onnxruntime_src[^]]*] : 1 : FAIL : ||' <<<"$said")
    said="${said:0:400} (see $log)"
  fi
  printf '%-36s %-10s %4ds  %s\n' "$name" "$state" $((SECONDS - begin)) "$said" | tee -a "$table"
}

gpu_test() { # PACKAGE TEST: a test that needs a GPU
  cd "$1" && STATEFUL_GPU=1 "$out/$(basename "$1").test" -test.v -test.run "^$2\$"
}

session_test() { # TEST: one that needs ONNX Runtime, too
  [ -n "$ort" ] || { echo "--- SKIP: name ONNX Runtime's build for GPUs with --ort" && return; }
  STATEFUL_ORT_LIB=$ort gpu_test ortrunner "TestOnGPU/$1"
}

machine() {
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader >"$out/machine.txt" || return 1
  echo "result: $(paste -sd ';' "$out/machine.txt")"
}

libraries() { # FILE...: everything that libraries other than ONNX Runtime's need is found
  local file missing
  [ -n "$ort" ] || { echo "--- SKIP: name ONNX Runtime's build for GPUs with --ort" && return; }
  for file in "$@"; do
    file=$(dirname "$ort")/$file
    [ -f "$file" ] || { echo "result: there is no $file: want ONNX Runtime's build for GPUs" && return 1; }
    missing=$(ldd "$file" | awk '/not found/ { print $1 }' | sort -u | paste -sd ' ')
    if [ -n "$missing" ]; then
      echo "result: $(basename "$file") lacks $missing: install it, or put its folder into LD_LIBRARY_PATH"
      return 1
    fi
  done
  echo "result: all found"
}

cudnn() { # ONNX Runtime opens it by itself, for convolutions and recurrent layers
  python3 -c 'import ctypes; ctypes.CDLL("libcudnn.so.9"); print("result: found")' && return
  echo "result: libcudnn.so.9 is not found: install cuDNN 9, or put its folder into LD_LIBRARY_PATH"
  return 1
}

memcheck() { # the kernels touch nothing that is not theirs
  command -v compute-sanitizer >/dev/null || { echo "--- SKIP: there is no compute-sanitizer; it comes with the CUDA toolkit" && return; }
  cd internal/devicememory && STATEFUL_GPU=1 compute-sanitizer --tool memcheck --error-exitcode 9 \
    "$out/devicememory.test" -test.v -test.run '^TestOnGPU/Kernels$'
}

server() { # PROVIDER: streaming models in the real tritonserver, with instances on the GPU
  local folder=$out/backends/stateful built=build/install/backends/stateful
  [ -n "$ort" ] || { echo "--- SKIP: name ONNX Runtime's build for GPUs with --ort" && return; }
  [ -f $built/libtriton_stateful.so ] || { echo "--- SKIP: run go run build.go first" && return; }
  rm -rf "$folder" && mkdir -p "$folder" || return 1
  cp $built/libtriton_stateful*.so "$(dirname "$ort")"/libonnxruntime_providers_*.so "$folder" || return 1
  cp "$ort" "$folder/libonnxruntime_stateful.so" || return 1
  STATEFUL_BACKENDS=$out/backends STATEFUL_EP=$1 build/venv/bin/python -m pytest -q -rs scripts/e2e/on_gpu.py |
    sed '$s/^/result: /'
}

export ort out
export -f gpu_test session_test machine libraries cudnn memcheck server

line "machine" machine
line "libraries: CUDA" libraries libonnxruntime_providers_shared.so libonnxruntime_providers_cuda.so
line "libraries: cuDNN" cudnn
line "libraries: TensorRT" libraries libonnxruntime_providers_tensorrt.so
line "driver" gpu_test internal/devicememory TestOnGPU/Driver
line "PTX is compiled" gpu_test internal/devicememory TestOnGPU/JIT
line "kernels move what they should" gpu_test internal/devicememory TestOnGPU/Kernels
line "single copies do the same" gpu_test internal/devicememory TestOnGPU/Copies
line "states are appended to" gpu_test internal/devicememory TestOnGPU/Appended
line "kernels under compute-sanitizer" memcheck
line "time of gather and scatter" gpu_test internal/devicememory TestOnGPU/Speed
line "new states in old or fresh slots" gpu_test internal/devicememory TestOnGPU/Slots
line "memory runs out cleanly" gpu_test internal/devicememory TestOnGPU/Full
line "sequences come and go" gpu_test internal/devicememory TestOnGPU/Cycles
line "session with CUDA" session_test CUDA
line "runs captured as CUDA graphs" session_test Graphs
line "runs are put in ahead" session_test Ahead
line "gpu_mem_limit holds" session_test Limit
line "session with TensorRT" session_test TensorRT
line "NVML agrees with the driver" gpu_test internal/gpuinfo TestOnGPU
line "tritonserver, models on CUDA" server cuda
line "tritonserver, models on TensorRT" server trt

echo
echo "The table is in $table."
exit $bad
