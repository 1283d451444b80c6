package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"tritonstateful/clients/go/load"
	"tritonstateful/internal/cli/recording"
	"tritonstateful/internal/tensor"
)

func init() { verbs = append(verbs, loadVerb) }

// loadOptions are the flags of load.
type loadOptions struct {
	load.Paced
	killOptions
	rate              string
	data, shapes, slo []string
}

func loadVerb(c *command) *cobra.Command {
	var o loadOptions
	verb := &cobra.Command{
		Use:   "load grpc://HOST:PORT[,HOST:PORT...] MODEL",
		Short: "Load a server with sequences, and measure latencies",
		Long: "Has each of --sequences send its steps at the times that --rate says, whether or not the server keeps up.\n" +
			"Latencies count from when a step was due. Exit code 2 means that steps failed or an objective was missed.",
		Example: strings.Join([]string{
			`  tritonstateful load grpc://localhost:8001 vad --sequences 100 --rate 31/s --shape input=1,576 --data call.wav --slo p99=50ms`,
			`  tritonstateful load grpc://a:8001,b:8001 vad --resume --duration 5m`,
		}, "\n"),
		Args: arguments("grpc://HOST:PORT", "MODEL"),
		RunE: func(_ *cobra.Command, args []string) error { return c.load(args[0], args[1], &o) },
	}
	f := verb.Flags()
	f.IntVar(&o.Sequences, "sequences", 16, "sequences at a time")
	f.StringVar(&o.rate, "rate", "10/s", "`STEPS/s` of each sequence")
	f.IntVar(&o.Steps, "steps", 100, "steps of a sequence; another one follows")
	f.DurationVar(&o.Warmup, "warmup", time.Second, "time of load before the measurement")
	f.DurationVar(&o.Duration, "duration", 10*time.Second, "time of the measurement")
	f.BoolVar(&o.Resume, "resume", false, "continue sequences whose server was lost; the model needs a state_store")
	f.StringArrayVar(&o.data, "data", nil, "a .npy or .wav `FILE` for the first input of fractions, or INPUT=FILE; can be given several times (default: small whole numbers)")
	f.StringArrayVar(&o.shapes, "shape", nil, "`INPUT=EXTENTS`, such as audio=1,512, for an input whose shape the model leaves open; can be given several times")
	f.StringArrayVar(&o.slo, "slo", nil, "an objective `pN=TIME`, such as p99=50ms; can be given several times")
	f.BoolVar(&o.Stream, "stream", false, "send the steps of each sequence over a gRPC stream of its own")
	f.StringVar(&o.kill, "kill", "", "kill a server in the measurement: a process ID, which gets SIGKILL, or a shell command")
	f.DurationVar(&o.every, "kill-every", 0, "time from kill to kill (default: once, half way)")
	f.StringVar(&o.restart, "restart", "", "shell command that starts the server again after each kill, and returns")
	return verb
}

// loading is the result of load as JSON.
type loading struct {
	Schema     int         `json:"schema"`
	Model      string      `json:"model"`
	Sequences  int         `json:"sequences"`
	Wanted     float64     `json:"wanted_steps_per_second"`
	Rate       float64     `json:"steps_per_second"`
	Steps      int         `json:"steps"`
	Unsent     int         `json:"unsent"`
	Failed     int         `json:"failed"`
	Resumed    int         `json:"resumed"`
	P50        float64     `json:"p50_ms"`
	P90        float64     `json:"p90_ms"`
	P99        float64     `json:"p99_ms"`
	Max        float64     `json:"max_ms"`
	Histogram  []bar       `json:"histogram"`
	Objectives []objective `json:"objectives"`
	Failures   []string    `json:"failures"` // the first few different ones
	Kills      []drill     `json:"kills"`
}

// bar is how many steps took at most UpTo, and more than the bar before.
type bar struct {
	UpTo  float64 `json:"up_to_ms"`
	Steps int     `json:"steps"`
}

// objective is a bound of a percentile.
type objective struct {
	Percentile float64 `json:"percentile"`
	Want       float64 `json:"want_ms"`
	Got        float64 `json:"got_ms"`
	Met        bool    `json:"met"`
}

func (c *command) load(address, model string, o *loadOptions) error {
	objectives, err := o.read(address, model)
	if err != nil {
		return usageError{err}
	}
	kills, err := newDrills(&o.killOptions, o.Duration)
	if err != nil {
		return usageError{err}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop) // a second interrupt ends the command at once
	described, done := context.WithTimeout(ctx, 10*time.Second)
	defer done()
	if o.Inputs, err = load.Describe(described, o.URLs[0], model); err != nil {
		return fmt.Errorf("ask %s for the inputs of model %s: %w", o.URLs[0], model, err)
	}
	if err := o.shape(); err != nil {
		return usageError{err}
	}
	if err := o.record(); err != nil {
		return err
	}
	finish := c.showProgress(o)
	stopKilling := kills.start(ctx, &o.Paced)
	got, err := load.Pace(ctx, o.Paced)
	stopKilling()
	finish()
	if err != nil {
		return err
	}
	result := loaded(o, got, objectives)
	result.Kills = kills.results()
	if err := c.emit(result, func(w io.Writer) { c.printLoading(w, result) }); err != nil {
		return err
	}
	if result.Failed > 0 || result.Steps == 0 || slices.ContainsFunc(result.Kills, func(k drill) bool { return k.Error != "" }) || slices.ContainsFunc(result.Objectives, func(o objective) bool { return !o.Met }) {
		return errFound
	}
	return nil
}

// read reads what the command line says as text.
func (o *loadOptions) read(address, model string) (objectives []objective, err error) {
	hosts, is := strings.CutPrefix(address, "grpc://")
	if !is || hosts == "" {
		return nil, fmt.Errorf("the address is %q: want grpc://HOST:PORT of the server's gRPC service", address)
	}
	o.Model = model
	for host := range strings.SplitSeq(hosts, ",") {
		o.URLs = append(o.URLs, strings.TrimPrefix(host, "grpc://"))
	}
	o.Rate, err = strconv.ParseFloat(strings.TrimSuffix(o.rate, "/s"), 64)
	if err != nil || !(o.Rate > 0 && o.Rate <= 1e6) {
		return nil, fmt.Errorf("--rate is %q: want steps per second of each sequence, such as 31/s", o.rate)
	}
	if o.Stream && o.Resume {
		return nil, errors.New("--stream excludes --resume: sequences over streams are not resumed")
	}
	if o.Sequences < 1 || o.Steps < 1 || o.Duration <= 0 || o.Warmup < 0 {
		return nil, errors.New("want --sequences and --steps of 1 or more, and times that are not negative")
	}
	for _, text := range o.slo {
		name, bound, _ := strings.Cut(text, "=")
		percent, err := strconv.ParseFloat(strings.TrimPrefix(name, "p"), 64)
		limit, wrong := time.ParseDuration(bound)
		if err != nil || wrong != nil || !(percent > 0 && percent <= 100) || limit <= 0 || name[0] != 'p' {
			return nil, fmt.Errorf("--slo is %q: want a percentile and a time, such as p99=50ms", text)
		}
		objectives = append(objectives, objective{Percentile: percent, Want: ms(limit)})
	}
	return objectives, nil
}

// shape gives every input a shape. The first axis is the batch where it is open.
func (o *loadOptions) shape() error {
	for _, text := range o.shapes {
		name, extents, _ := strings.Cut(text, "=")
		at := slices.IndexFunc(o.Inputs, func(in load.Input) bool { return in.Name == name })
		if at < 0 {
			return fmt.Errorf("--shape %s: the model has no such input: want %s", text, o.names())
		}
		var shape []int64
		for word := range strings.SplitSeq(extents, ",") {
			extent, err := strconv.ParseInt(word, 10, 32)
			if err != nil || extent < 1 {
				return fmt.Errorf("--shape %s: want INPUT=EXTENTS with extents of 1 or more, such as %s=1,512", text, name)
			}
			shape = append(shape, extent)
		}
		if len(shape) != len(o.Inputs[at].Shape) {
			return fmt.Errorf("--shape %s: want %d extents, for %v with the batch", text, len(o.Inputs[at].Shape), o.Inputs[at].Shape)
		}
		o.Inputs[at].Shape = shape
	}
	for _, in := range o.Inputs {
		if len(in.Shape) > 0 && in.Shape[0] == -1 {
			in.Shape[0] = 1
		}
		if slices.Contains(in.Shape, -1) {
			return fmt.Errorf("input %q has shape %v, which the model leaves open: want --shape %s=... with the extents of a request", in.Name, in.Shape, in.Name)
		}
	}
	return nil
}

func (o *loadOptions) names() string {
	names := make([]string, len(o.Inputs))
	for i, in := range o.Inputs {
		names[i] = in.Name
	}
	return strings.Join(names, ", ")
}

// record reads the files of --data.
func (o *loadOptions) record() error {
	recorded := map[int]*recording.Recording{}
	elements := make([]int, len(o.Inputs))
	for i, in := range o.Inputs {
		n, err := tensor.Shape(in.Shape).Elements()
		if err != nil {
			return err
		}
		elements[i] = int(n)
	}
	for _, text := range o.data {
		name, path, named := strings.Cut(text, "=")
		if !named {
			path = text
		}
		at := slices.IndexFunc(o.Inputs, func(in load.Input) bool {
			dtype, err := tensor.ParseDType(in.Datatype)
			return named && in.Name == name || !named && err == nil && recording.IsFraction(dtype)
		})
		if at < 0 {
			return usagef("--data %s: the model has no such input: want FILE or INPUT=FILE, of %s", text, o.names())
		}
		dtype, err := tensor.ParseDType(o.Inputs[at].Datatype)
		if err != nil {
			return err
		}
		if recorded[at], err = recording.Read(path, dtype); err != nil {
			return err
		}
		if _, err := recorded[at].Piece(0, 0, elements[at]); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	if len(recorded) > 0 {
		o.Piece = func(input, sequence, step int) []byte {
			r := recorded[input]
			if r == nil {
				return nil
			}
			piece, _ := r.Piece(sequence, step, elements[input]) // as long as the file is, it was checked
			return piece
		}
	}
	return nil
}

// showProgress has the load write a line about itself to stderr: on a terminal each second in the same place, else every ten
// seconds. finish ends the line.
func (c *command) showProgress(o *loadOptions) (finish func()) {
	file, isFile := c.stderr.(*os.File)
	live := isFile && term.IsTerminal(int(file.Fd()))
	calls := 0
	o.Progress = func(p load.Progress) {
		calls++
		line := fmt.Sprintf("%3.0f s of %.0f: %.0f steps/s, p99 %.1f ms, %d failed, %d resumed",
			p.Elapsed.Seconds(), (o.Warmup + o.Duration).Seconds(), p.Rate, ms(p.P99), p.Failed, p.Resumed)
		switch {
		case live:
			fmt.Fprintf(c.stderr, "\r%-79s", line)
		case calls%10 == 0:
			fmt.Fprintln(c.stderr, line)
		}
	}
	return func() {
		if live && calls > 0 {
			fmt.Fprintf(c.stderr, "\r%-79s\r", "")
		}
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// loaded sums up a load.
func loaded(o *loadOptions, got *load.Pacing, objectives []objective) *loading {
	r := &loading{
		Schema: 1, Model: o.Model, Sequences: o.Sequences, Wanted: o.Rate * float64(o.Sequences), Steps: len(got.Latencies) - got.Unsent,
		Unsent: got.Unsent, Failed: got.Failed, Resumed: got.Resumed, Failures: append([]string{}, got.Texts...), Histogram: histogram(got.Latencies),
		P50: ms(got.Percentile(50)), P90: ms(got.Percentile(90)), P99: ms(got.Percentile(99)), Max: ms(got.Percentile(100)),
		Objectives: []objective{},
	}
	if got.Took > 0 {
		r.Rate = float64(r.Steps) / got.Took.Seconds()
	}
	for _, want := range objectives {
		want.Got = ms(got.Percentile(want.Percentile))
		want.Met = r.Steps > 0 && want.Got <= want.Want
		r.Objectives = append(r.Objectives, want)
	}
	return r
}

// histogram counts sorted latencies in steps of 1, 2, 5, 10, from the first bar with any to the last one.
func histogram(sorted []time.Duration) []bar {
	bars := []bar{}
	for limit, next := 50*time.Microsecond, 0; len(sorted) > 0; next++ {
		n, _ := slices.BinarySearch(sorted, limit+1)
		if n > 0 || len(bars) > 0 {
			bars = append(bars, bar{ms(limit), n})
		}
		sorted = sorted[n:]
		limit *= 2
		if next%3 == 2 { // from 2 to 5
			limit += limit / 4
		}
	}
	return bars
}
