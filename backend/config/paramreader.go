package config

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"tritonstateful/internal/onnx"
	"tritonstateful/statebuffer"
)

// paramReader collects what is wrong while parameters are read one by one.
type paramReader struct {
	given    map[string]Value
	known    map[string]bool
	faulty   map[string]bool
	faults   []error
	warnings []string
	misspelt []string // those of the warnings that are about a name close to a known one
	settings map[string]string
}

func newParamReader(given map[string]Value) *paramReader {
	return &paramReader{given: given, known: map[string]bool{}, faulty: map[string]bool{}, settings: map[string]string{}}
}

// value is the text of a parameter without surrounding blanks. An empty text
// counts as not given, as it does for NVIDIA's backend.
func (r *paramReader) value(name string) (string, bool) {
	r.known[name] = true
	text := strings.TrimSpace(r.given[name].String)
	if text != "" && !r.faulty[name] {
		r.settings[name] = text
	}
	return text, text != ""
}

// byDefault notes a parameter that has its default, and returns that.
func byDefault[T any](r *paramReader, name string, fallback T) T {
	if text := fmt.Sprint(fallback); text != "" {
		r.settings[name] = text
	}
	return fallback
}

func (r *paramReader) fault(name, value, want string) {
	r.reject(name, fmt.Errorf("parameter %s is %q: want %s", name, value, want))
}

func (r *paramReader) reject(name string, err error) {
	r.faulty[name] = true
	delete(r.settings, name)
	r.faults = append(r.faults, err)
}

func (r *paramReader) text(name, fallback string) string {
	if text, ok := r.value(name); ok {
		return text
	}
	return byDefault(r, name, fallback)
}

func (r *paramReader) flag(name string, fallback bool) bool {
	shown := map[bool]string{false: "0", true: "1"}[fallback]
	text, ok := r.value(name)
	if !ok {
		byDefault(r, name, shown)
		return fallback
	}
	value, err := onnx.Bool.Check(text)
	if err != nil {
		r.reject(name, fmt.Errorf("parameter %s is %q: %w", name, text, err))
		byDefault(r, name, shown)
		return fallback
	}
	return value == "1"
}

func (r *paramReader) verbosity(name string, fallback Verbosity) Verbosity {
	return oneOf(r, name, fallback, choice("NONE", LogNone), choice("INFO", LogInfo), choice("VERBOSE", LogVerbose))
}

func (r *paramReader) count(name string, fallback, most int) int {
	text, ok := r.value(name)
	if !ok {
		return byDefault(r, name, fallback)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > int64(most) {
		r.fault(name, text, fmt.Sprintf("a whole number from 0 to %d", most))
		return byDefault(r, name, fallback)
	}
	return int(n)
}

// gpuMemory is a number of bytes. Triton's onnxruntime backend says "no limit" by the largest
// number of 64 bits.
func (r *paramReader) gpuMemory() int64 {
	if text, _ := r.value("gpu_mem_limit"); text == strconv.FormatUint(math.MaxUint64, 10) {
		return 0
	}
	return int64(r.count("gpu_mem_limit", 0, math.MaxInt))
}

// period is a number of seconds; like 0, a negative one means never, as it does
// for NVIDIA's backend.
func (r *paramReader) period(name string) time.Duration {
	text, ok := r.value(name)
	if !ok {
		return time.Duration(byDefault(r, name, 0))
	}
	seconds, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		r.fault(name, text, "a whole number of seconds, 0 for never")
		return time.Duration(byDefault(r, name, 0))
	}
	return time.Duration(max(seconds, 0)) * time.Second
}

func (r *paramReader) ratio(name string, fallback float32) float32 {
	text, ok := r.value(name)
	if !ok {
		return byDefault(r, name, fallback)
	}
	f, err := strconv.ParseFloat(text, 32)
	if err != nil || !(f > 0) || math.IsInf(f, 0) {
		r.fault(name, text, "a number above 0, such as 0.9")
		return byDefault(r, name, fallback)
	}
	return float32(f)
}

// fileName keeps the path inside the version's folder.
func (r *paramReader) fileName(name, fallback string) string {
	text, ok := r.value(name)
	if !ok {
		return byDefault(r, name, fallback)
	}
	if !filepath.IsLocal(text) {
		r.fault(name, text, "the name of a file inside the model's version folder")
		return byDefault(r, name, fallback)
	}
	return text
}

func (r *paramReader) padding() Padding {
	padding := PadAuto
	if r.flag("always_pad_to_max_batch", false) {
		padding = PadPreferred // what NVIDIA's backend does, whatever the name says
	}
	return oneOf(r, "batch_padding", padding, choice("auto", PadAuto), choice("none", PadNone), choice("preferred", PadPreferred), choice("max", PadMax))
}

func (r *paramReader) lazy() *statebuffer.LazyBuffers {
	var numbers [4]int
	var missing []string
	given := 0
	for i, name := range LazyNames {
		if _, ok := r.value(name); !ok {
			missing = append(missing, name)
			continue
		}
		given++
		numbers[i] = r.count(name, 0, math.MaxInt32)
	}
	switch {
	case given == 0:
		return nil
	case slices.Contains(missing, LazyNames[0]):
		r.warnings = append(r.warnings, fmt.Sprintf("parameter %s is not given, so all slots are allocated at once and the other parameters of lazy allocation have no effect", LazyNames[0]))
		return nil
	case len(missing) > 0:
		r.reject(LazyNames[0], fmt.Errorf("parameter %s is given: %s must be given with it", LazyNames[0], strings.Join(missing, " and ")))
		return nil
	}
	return &statebuffer.LazyBuffers{Initial: numbers[0], Subsequent: numbers[1], AllocThreshold: numbers[2], DeallocThreshold: numbers[3]}
}

func (r *paramReader) assignments(name string) []Assignment {
	text, ok := r.value(name)
	if !ok {
		return nil
	}
	all, err := parseAssignments(text)
	if err != nil {
		r.reject(name, fmt.Errorf("parameter %s: %w", name, err))
	}
	return all
}

func (r *paramReader) pairs(p *Parameters) {
	text, ok := r.value("state_pairs")
	if !ok {
		return
	}
	pairs, err := parsePairs(text)
	switch {
	case err != nil:
		r.reject("state_pairs", err)
	case len(pairs) == 0:
		r.fault("state_pairs", text, "<<<input, output>>> for each state")
	}
	p.Pairs, p.PairsGiven = pairs, true
}

// ParameterNames returns the names of all parameters that a configuration can have, sorted.
func ParameterNames() []string {
	r := newParamReader(nil)
	r.parameters()
	return slices.Sorted(maps.Keys(r.known))
}

func (r *paramReader) reportUnknown() {
	for _, name := range slices.Sorted(maps.Keys(r.given)) {
		if r.known[name] {
			continue
		}
		warning := fmt.Sprintf("parameter %q is unknown and has no effect", name)
		if near := r.meant(name); near != "" {
			warning += fmt.Sprintf("; did you mean %q?", near)
			r.misspelt = append(r.misspelt, warning)
		}
		r.warnings = append(r.warnings, warning)
	}
}

// meant returns the parameter that an unknown name is most like, or "". A setting of ONNX
// Runtime is meant if only the beginning of its name is missing.
func (r *paramReader) meant(name string) string {
	for _, key := range passedOnNames() {
		if strings.HasSuffix(key, "."+name) {
			return key
		}
	}
	return nearest(name, slices.Sorted(maps.Keys(r.known)))
}

type option[T any] struct {
	word  string
	value T
}

func choice[T any](word string, value T) option[T] { return option[T]{word, value} }

// oneOf reads a parameter that is one of some words. The default is shown as the first word
// for it. The words true and false are taken in either case, as those of a flag are.
func oneOf[T comparable](r *paramReader, name string, fallback T, options ...option[T]) T {
	text, given := r.value(name)
	wanted := text
	if lower := strings.ToLower(text); lower == "false" || lower == "true" {
		wanted = lower
	}
	words, shown := make([]string, len(options)), ""
	for i, o := range options {
		if given && o.word == wanted {
			return o.value
		}
		if o.value == fallback && shown == "" {
			shown = o.word
		}
		words[i] = o.word
	}
	if given {
		r.fault(name, text, "one of "+strings.Join(words, ", "))
	}
	byDefault(r, name, shown)
	return fallback
}
