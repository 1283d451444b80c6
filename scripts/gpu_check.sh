#!/usr/bin/env bash
# Checks on a machine with an NVIDIA GPU what no other machine can check, and
# prints a table. Run it from the repository's root after go run build.go:
#
#     scripts/gpu_check.sh [--ort /path/to/onnxruntime-gpu/libonnxruntime.so]
#
# It needs Go and gcc, and for the lines about ONNX Runtime its GPU build (see
# docs/gpu.md). Lines that need what is not there say so; they do not pass. Each
# takes at most two minutes. The whole output is kept in build/gpu_check.
set -u
cd "$(dirname "$0")/.." || exit 1

ort=${STATEFUL_ORT_LIB:-}
if [ "${1:-}" = --ort ] && [ -n "${2:-}" ]; then ort=$2; fi
out=build/gpu_check
mkdir -p "$out"
table=$out/table.txt
: >"$table"
bad=0

# line NAME COMMAND...: runs the command, and adds how it ended and its last line
# that begins with "result:" to the table.
line() {
  local name=$1 log="$out/${1// /_}.log" state=ok
  shift
  local begin=$SECONDS
  timeout 120 "$@" >"$log" 2>&1
  local code=$?
  if [ $code -eq 124 ]; then state="over 120 s"; elif [ $code -ne 0 ]; then state="FAILED"; fi
  if grep -q -- '--- SKIP' "$log"; then state="not run"; fi
  [ "$state" = ok ] || bad=1
  printf '%-34s %-10s %4ds  %s\n' "$name" "$state" $((SECONDS - begin)) \
    "$(grep -o 'result: .*' "$log" | tail -1 | cut -c9-)" | tee -a "$table"
}

gpu_test() { # the tests of a package that need a GPU
  STATEFUL_GPU=1 STATEFUL_ORT_LIB="$ort" go test -count=1 -v -run "$2" "$1"
}

machine() {
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | sed 's/^/result: /'
}

libraries() { # everything that ONNX Runtime's libraries need is found
  local folder missing
  [ -n "$ort" ] || { echo "result: name the library with --ort"; return 1; }
  folder=$(dirname "$ort")
  for file in "$ort" "$folder"/libonnxruntime_providers_*.so; do
    missing=$(ldd "$file" | grep 'not found')
    if [ -n "$missing" ]; then
      echo "result: $(basename "$file") lacks $(echo "$missing" | awk '{print $1}' | tr '\n' ' ')"
      return 1
    fi
  done
  echo "result: $(basename "$ort"): all found"
}

memcheck() { # the kernels touch nothing that is not theirs
  command -v compute-sanitizer >/dev/null || { echo "--- SKIP: no compute-sanitizer"; return 0; }
  go test -c -o "$out/devicememory.test" ./internal/devicememory || return 1
  (cd internal/devicememory && STATEFUL_GPU=1 compute-sanitizer --tool memcheck --error-exitcode 9 \
    "../../$out/devicememory.test" -test.run 'TestOnGPU/Kernels')
}

line "machine" machine
line "libraries of ONNX Runtime" libraries
line "driver: streams, events, memory" gpu_test ./internal/devicememory TestOnGPU/Driver
line "PTX is compiled" gpu_test ./internal/devicememory TestOnGPU/JIT
line "kernels move what they should" gpu_test ./internal/devicememory TestOnGPU/Kernels
line "single copies do the same" gpu_test ./internal/devicememory TestOnGPU/Copies
line "kernels under compute-sanitizer" memcheck
line "memory runs out cleanly" gpu_test ./internal/devicememory TestOnGPU/Full
line "memory comes back" gpu_test ./internal/devicememory TestOnGPU/Cycles
line "time of gather and scatter" gpu_test ./internal/devicememory TestOnGPU/Speed
line "session with CUDA" gpu_test ./ortrunner TestOnGPU/CUDA
line "session with TensorRT" gpu_test ./ortrunner TestOnGPU/TensorRT
line "runs recorded as CUDA graphs" gpu_test ./ortrunner TestOnGPU/Recorded
line "NVML agrees with the driver" gpu_test ./internal/gpuinfo TestOnGPU

echo
echo "The table is in $table."
exit $bad
