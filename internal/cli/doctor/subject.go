package doctor

import (
	"regexp"
	"strconv"
	"strings"
)

// A Subject is what can be seen of servers and models. Rules skip what is empty.
type Subject struct {
	Server    *Server
	Process   *Process
	Models    []Model
	Commands  []Command  // by which servers are started, of a process or a deployment
	Workloads []Workload // of deployments
	Scalers   []Scaler
	Libraries []Library
	// Headers: the files of the deployment route by the header of sequences.
	Headers bool
	Libc    *Libc
	// Files counts the files of deployments that were read.
	Files int
}

// A Server answers at a URL.
type Server struct {
	URL     string
	Version Version
}

// A Process is a tritonserver that runs on this machine.
type Process struct {
	PID int
	// Runtimes are the files of ONNX Runtime that it has loaded.
	Runtimes []string
	Env      map[string]string // only the variables that rules look at
}

func (p *Process) where() string { return "process " + strconv.Itoa(p.PID) }

// A Command is how a server is started.
type Command struct {
	Where   string // a process, or a file and a container in it
	Args    []string
	Version Version // of an image, if its tag says it
}

// option returns the value of an option, which may be given as --name=value or as --name value.
func (c *Command) option(name string) (value string, given bool) {
	for _, v := range c.options(name) {
		value, given = v, true
	}
	return value, given
}

// options returns the values of an option that may be repeated.
func (c *Command) options(name string) (values []string) {
	for i, arg := range c.Args {
		if rest, ok := strings.CutPrefix(arg, "--"+name+"="); ok {
			values = append(values, rest)
		} else if arg == "--"+name && i+1 < len(c.Args) {
			values = append(values, c.Args[i+1])
		}
	}
	return values
}

// A Workload runs servers.
type Workload struct {
	Where    string // a file and a name
	Kind     string
	Name     string
	Replicas int // 1 if it does not say
	Affinity string
}

// A Scaler changes the number of servers of a workload.
type Scaler struct {
	Where       string
	Target      string
	MaxReplicas int
	Metrics     []string // such as cpu or stateful_slots_used_ratio
}

// A Version is that of tritonserver: its monthly release (YY.MM), or its own number (2.51), or
// both. Zero: unknown.
type Version struct {
	Release int // 2410 for 24.10
	Minor   int // 51 for 2.51
}

var (
	serverVersion = regexp.MustCompile(`^2\.(\d+)`)
	imageRelease  = regexp.MustCompile(`tritonserver[\w.-]*:(\d\d)\.(\d\d)\b`)
)

// parseVersion reads what a server says of itself, such as 2.51.0.
func parseVersion(text string) (v Version) {
	if found := serverVersion.FindStringSubmatch(text); found != nil {
		v.Minor, _ = strconv.Atoi(found[1])
	}
	return v
}

// imageVersion reads the tag of an image, such as nvcr.io/nvidia/tritonserver:24.10-py3.
func imageVersion(image string) (v Version) {
	if found := imageRelease.FindStringSubmatch(image); found != nil {
		v.Release, _ = strconv.Atoi(found[1] + found[2])
	}
	return v
}

func (v Version) known() bool { return v != Version{} }

// before reports whether a version is older than a release, which is also known by its number.
func (v Version) before(release, minor int) bool {
	if v.Minor > 0 {
		return v.Minor < minor
	}
	return v.Release < release
}

func (v Version) String() string {
	switch {
	case v.Minor > 0:
		return "2." + strconv.Itoa(v.Minor)
	case v.Release > 0:
		text := strconv.Itoa(v.Release)
		return text[:2] + "." + text[2:]
	}
	return "unknown"
}

// versions returns the servers whose version is known, by where that was seen.
func (s *Subject) versions() (known []Command) {
	if s.Server != nil && s.Server.Version.known() {
		c := Command{Where: s.Server.URL, Version: s.Server.Version}
		if s.Process != nil {
			c.Args = s.processArgs()
		}
		known = append(known, c)
	}
	for _, c := range s.Commands {
		if c.Version.known() {
			known = append(known, c)
		}
	}
	return known
}

// processArgs are the arguments of the process.
func (s *Subject) processArgs() []string {
	for _, c := range s.Commands {
		if s.Process != nil && c.Where == s.Process.where() {
			return c.Args
		}
	}
	return nil
}
