package doctor

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// folder writes files, and returns the folder.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return dir
}

// read is what a folder with these files is.
func read(t *testing.T, files map[string]string) *Subject {
	t.Helper()
	s := &Subject{}
	skipped, err := s.Read(folder(t, files))
	require.NoError(t, err)
	require.Empty(t, skipped)
	return s
}

// server is a subject of a server that answers as Triton does.
func server(t *testing.T, version, config string) *Subject {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v2", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"name":"triton","version":"` + version + `","extensions":["sequence"]}`))
	})
	mux.HandleFunc("POST /v2/repository/index", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`[{"name":"m","version":"1","state":"READY"},{"name":"m","version":"2","state":"READY"},{"name":"gone","version":"1","state":"UNAVAILABLE","reason":"unloaded"}]`))
	})
	mux.HandleFunc("GET /v2/models/m/config", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(config)) })
	running := httptest.NewServer(mux)
	t.Cleanup(running.Close)
	s := &Subject{}
	require.NoError(t, s.Ask(t.Context(), running.URL))
	return s
}

// model is a config.pbtxt of this backend.
func model(text string) map[string]string {
	return map[string]string{"m/config.pbtxt": `backend: "stateful" ` + text}
}

// started is a deployment of one server with some options.
func started(image, options string) map[string]string {
	return map[string]string{"compose.yaml": "services:\n  triton:\n    image: " + image + "\n    command: tritonserver --model-repository=/models " + options + "\n"}
}

func with(more map[string]string, files map[string]string) map[string]string {
	for name, text := range more {
		files[name] = text
	}
	return files
}

const (
	patient  = `sequence_batching { max_sequence_idle_microseconds: 60000000 }`
	deployed = `
apiVersion: apps/v1
kind: Deployment
metadata: { name: asr }
spec:
  replicas: 3
  template: { spec: { containers: [ { image: "registry/tritonserver:25.03-py3", args: [ "--model-repository=/models" ] } ] } }
`
	scaled = `
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: { name: asr }
spec:
  scaleTargetRef: { kind: Deployment, name: asr }
  maxReplicas: 10
  metrics: [ { type: Resource, resource: { name: cpu, target: { type: Utilization, averageUtilization: 60 } } } ]
`
	corrid = `control_input [{ name: "id" control [{ kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 }] }]`
)

// cases have, for each rule, subjects with the fault, by what the evidence says, and without it.
var cases = map[string]struct {
	ill     map[string]func(t *testing.T) *Subject
	healthy []func(t *testing.T) *Subject
}{
	"idle-limit": {
		map[string]func(t *testing.T) *Subject{
			"is not given": func(t *testing.T) *Subject { return read(t, model(`sequence_batching { }`)) },
			"is 500000, less than one second": func(t *testing.T) *Subject {
				return read(t, model(`sequence_batching { max_sequence_idle_microseconds: 500000 }`))
			},
			"is 1000000": func(t *testing.T) *Subject {
				return server(t, "2.51.0", `{"name":"m","backend":"stateful","sequence_batching":{"max_sequence_idle_microseconds":"1000000"}}`)
			},
		},
		[]func(t *testing.T) *Subject{
			func(t *testing.T) *Subject { return read(t, model(patient)) },
			func(t *testing.T) *Subject {
				return server(t, "2.51.0", `{"name":"m","backend":"onnxruntime","sequence_batching":{"max_sequence_idle_microseconds":1000000}}`)
			},
		},
	},
	"numeric-corrid": {
		map[string]func(t *testing.T) *Subject{
			"the server is 2.51, which crashes": func(t *testing.T) *Subject {
				return server(t, "2.51.0", `{"name":"m","backend":"stateful","sequence_batching":{"control_input":[{"name":"id","control":[{"kind":"CONTROL_SEQUENCE_CORRID","data_type":"TYPE_UINT64"}]}]}}`)
			},
			"the server is 24.10": func(t *testing.T) *Subject { // one of two
				two := map[string]string{"compose.yaml": "services: { a: { image: \"tritonserver:25.03\" }, b: { image: \"tritonserver:24.10\" } }"}
				return read(t, with(two, model(`sequence_batching { `+corrid+` }`)))
			},
			"a server before 25.01": func(t *testing.T) *Subject { return read(t, model(`sequence_batching { `+corrid+` }`)) },
		},
		[]func(t *testing.T) *Subject{
			func(t *testing.T) *Subject {
				return server(t, "2.54.0", `{"name":"m","backend":"stateful","sequence_batching":{"control_input":[{"name":"id","control":[{"kind":"CONTROL_SEQUENCE_CORRID","data_type":"TYPE_UINT64"}]}]}}`)
			},
			func(t *testing.T) *Subject {
				return read(t, model(`sequence_batching { `+strings.ReplaceAll(corrid, "UINT64", "STRING")+` }`))
			},
		},
	},
	"response-cache": {
		map[string]func(t *testing.T) *Subject{
			"the state is not updated": func(t *testing.T) *Subject {
				return read(t, model(`dynamic_batching { } response_cache { enable: true } parameters { key: "state_pairs" value { string_value: "<<<h, c>>>" } }`))
			},
		},
		[]func(t *testing.T) *Subject{
			func(t *testing.T) *Subject { return read(t, model(`response_cache { enable: true }`)) }, // no states
			func(t *testing.T) *Subject { return read(t, model(patient)) },
		},
	},
	"queue-policy": {
		map[string]func(t *testing.T) *Subject{
			"has priority_levels, and there is one instance": func(t *testing.T) *Subject {
				return read(t, model(`dynamic_batching { priority_levels: 2 default_priority_level: 1 }`))
			},
			"has a default_queue_policy, and there is one instance": func(t *testing.T) *Subject {
				return read(t, model(`dynamic_batching { default_queue_policy { max_queue_size: 10 } } instance_group [{ count: 1 }]`))
			},
		},
		[]func(t *testing.T) *Subject{
			func(t *testing.T) *Subject { return read(t, model(patient)) },
			func(t *testing.T) *Subject {
				return read(t, model(`dynamic_batching { max_queue_delay_microseconds: 100 }`))
			},
			func(t *testing.T) *Subject {
				return read(t, model(`dynamic_batching { priority_levels: 2 default_priority_level: 1 } instance_group [{ count: 2 }]`))
			},
		},
	},
	"grpc-pool": {
		map[string]func(t *testing.T) *Subject{
			"tritonserver 2.51, whose options are not known": func(t *testing.T) *Subject { return server(t, "2.51.0", `{}`) },
			"tritonserver 24.10, without": func(t *testing.T) *Subject {
				return read(t, started("nvcr.io/nvidia/tritonserver:24.10-py3", "--grpc-port 8001"))
			},
		},
		[]func(t *testing.T) *Subject{
			func(t *testing.T) *Subject { return server(t, "2.54.0", `{}`) },
			func(t *testing.T) *Subject {
				return read(t, started("tritonserver:24.10-py3", "--grpc-infer-allocation-pool-size 4096"))
			},
		},
	},
	"client-shm": {
		map[string]func(t *testing.T) *Subject{
			"the options are not known": func(t *testing.T) *Subject { return server(t, "2.70.0", `{}`) },
			"is not given":              func(t *testing.T) *Subject { return read(t, started("tritonserver:26.06-py3", "")) },
			"is false": func(t *testing.T) *Subject {
				return read(t, started("tritonserver:26.06-py3", "--allow-client-shm=false"))
			},
		},
		[]func(t *testing.T) *Subject{
			func(t *testing.T) *Subject {
				return read(t, started("tritonserver:26.06-py3", "--allow-client-shm=true"))
			},
			func(t *testing.T) *Subject { return server(t, "2.51.0", `{}`) },
		},
	},
	"header-forward": {
		map[string]func(t *testing.T) *Subject{
			"no headers are forwarded": func(t *testing.T) *Subject {
				return read(t, with(started("tritonserver", ""), model(`parameters { key: "state_store" value { string_value: "env" } }`)))
			},
		},
		[]func(t *testing.T) *Subject{
			func(t *testing.T) *Subject {
				return read(t, with(started("tritonserver", "--http-header-forward-pattern=stateful.*"), model(`parameters { key: "state_store" value { string_value: "env" } }`)))
			},
			func(t *testing.T) *Subject { return read(t, with(started("tritonserver", ""), model(patient))) },
		},
	},
	"default-max-batch-size": {
		map[string]func(t *testing.T) *Subject{
			"get max_batch_size 16": func(t *testing.T) *Subject {
				return read(t, with(started("tritonserver", "--backend-config=default-max-batch-size=16"), model(``)))
			},
			"get max_batch_size 0": func(t *testing.T) *Subject {
				return read(t, started("tritonserver", "--backend-config stateful,default-max-batch-size=0"))
			},
		},
		[]func(t *testing.T) *Subject{
			func(t *testing.T) *Subject {
				return read(t, with(started("tritonserver", "--backend-config=default-max-batch-size=16"), model(`max_batch_size: 8`)))
			},
			func(t *testing.T) *Subject {
				return read(t, started("tritonserver", "--backend-config=onnxruntime,default-max-batch-size=16"))
			},
		},
	},
	"affinity": {
		map[string]func(t *testing.T) *Subject{
			"Deployment asr has 3 replicas of tritonserver": func(t *testing.T) *Subject { return read(t, map[string]string{"a.yaml": deployed}) },
			"has up to 10 replicas": func(t *testing.T) *Subject {
				return read(t, map[string]string{"a.yaml": strings.ReplaceAll(deployed, "replicas: 3", "") + "---" + scaled})
			},
			"sessionAffinity: ClientIP binds the connections": func(t *testing.T) *Subject {
				return read(t, map[string]string{"a.yaml": deployed + "---\nkind: Service\nspec: { sessionAffinity: ClientIP }\n"})
			},
			"service triton has 2 replicas": func(t *testing.T) *Subject {
				return read(t, map[string]string{"compose.yml": "services: { triton: { image: tritonserver, deploy: { replicas: 2 } } }"})
			},
		},
		[]func(t *testing.T) *Subject{
			func(t *testing.T) *Subject {
				return read(t, map[string]string{"a.yaml": deployed, "haproxy.cfg": "balance hdr(stateful-sequence)"})
			},
			func(t *testing.T) *Subject {
				return read(t, map[string]string{"a.yaml": strings.ReplaceAll(deployed, "replicas: 3", "replicas: 1")})
			},
		},
	},
	"autoscaling": {
		map[string]func(t *testing.T) *Subject{
			"it scales on cpu": func(t *testing.T) *Subject { return read(t, map[string]string{"a.yaml": deployed, "b.yaml": scaled}) },
			"nv_inference_queue": func(t *testing.T) *Subject {
				return read(t, map[string]string{"a.yaml": deployed + "---\nkind: ScaledObject\nspec: { scaleTargetRef: { name: asr }, triggers: [ { type: prometheus, metadata: { query: rate(nv_inference_queue_duration_us) } } ] }\n"})
			},
		},
		[]func(t *testing.T) *Subject{
			func(t *testing.T) *Subject {
				return read(t, map[string]string{"a.yaml": deployed, "b.yaml": strings.ReplaceAll(scaled, "type: Resource, resource: { name: cpu", "type: Pods, pods: { metric: { name: stateful_slots_used_ratio }")})
			},
			func(t *testing.T) *Subject {
				return read(t, map[string]string{"a.yaml": deployed, "b.yaml": strings.ReplaceAll(scaled, "name: asr }\n  max", "name: web }\n  max")})
			},
		},
	},
	"onnxruntimes": {
		map[string]func(t *testing.T) *Subject{
			"has its own threads and memory": func(t *testing.T) *Subject { return running(t, ourRuntime, "libonnxruntime.so.1") },
			"knows them by one name": func(t *testing.T) *Subject {
				return running(t, "libonnxruntime.so.1", "other/libonnxruntime.so.1.23.0")
			},
		},
		[]func(t *testing.T) *Subject{func(t *testing.T) *Subject { return running(t, ourRuntime) }},
	},
	"telemetry": {
		map[string]func(t *testing.T) *Subject{
			"has telemetry, and ORT_DISABLE_TELEMETRY is not set": func(t *testing.T) *Subject {
				t.Setenv(telemetryVariable, "") // it is set for all tests
				return running(t, ourRuntime, "libonnxruntime.so.1")
			},
		},
		[]func(t *testing.T) *Subject{
			func(t *testing.T) *Subject { return running(t, ourRuntime) },
			func(t *testing.T) *Subject {
				t.Setenv(telemetryVariable, "1")
				return running(t, "libonnxruntime.so.1")
			},
		},
	},
	"glibc": {
		map[string]func(t *testing.T) *Subject{
			"is 2.17": func(t *testing.T) *Subject {
				s := running(t, "libtriton_stateful.so")
				libc, err := readLibc(oldLibc(t), "/lib/libc.so.6")
				require.NoError(t, err)
				s.Libc = libc
				return s
			},
		},
		[]func(t *testing.T) *Subject{func(t *testing.T) *Subject { return running(t, "libtriton_stateful.so") }},
	},
}

// TestEveryRule: each finds its fault, says where and what to do, and finds nothing without it.
func TestEveryRule(t *testing.T) {
	require.Len(t, cases, len(Rules))
	for i := range Rules {
		rule := &Rules[i]
		c := cases[rule.ID]
		require.NotEmpty(t, c.ill, rule.ID)
		require.NotEmpty(t, c.healthy, rule.ID)
		for evidence, subject := range c.ill {
			t.Run(rule.ID+"/"+evidence, func(t *testing.T) {
				found, unseen := rule.check(subject(t))
				require.Empty(t, unseen)
				require.NotEmpty(t, found)
				require.Contains(t, found[0].Evidence, evidence)
				require.NotEmpty(t, found[0].Where)
				require.NotEmpty(t, found[0].Remedy)
			})
		}
		for _, subject := range c.healthy {
			t.Run(rule.ID+"/healthy", func(t *testing.T) {
				found, _ := rule.check(subject(t))
				require.Empty(t, found)
			})
		}
		t.Run(rule.ID+"/unseen", func(t *testing.T) {
			found, unseen := rule.check(&Subject{})
			require.Empty(t, found)
			require.NotEmpty(t, unseen, "a rule that has seen nothing must not say that all is well")
		})
	}
}

// TestOurDeployment: what docs/deploy recommends has none of the faults.
func TestOurDeployment(t *testing.T) {
	s := &Subject{}
	skipped, err := s.Read(filepath.Join("..", "..", "..", "docs", "deploy"))
	require.NoError(t, err)
	require.Len(t, skipped, 1)
	require.Contains(t, skipped[0], "helm/templates: templates of Helm: want what helm template prints")
	require.NotEmpty(t, s.Workloads)
	require.NotEmpty(t, s.Scalers)
	require.Empty(t, Examine(s).Findings)
}

// TestReport: problems come first, and every rule is in one of the lists.
func TestReport(t *testing.T) {
	s := read(t, with(started("tritonserver:26.06", ""), map[string]string{
		"a/config.pbtxt": `backend: "stateful" sequence_batching { }`,
		"b/config.pbtxt": `backend: "stateful" name: "b" sequence_batching { }`,
	}))
	r := Examine(s)
	require.Equal(t, 2, r.Problems())
	require.Equal(t, "idle-limit", r.Findings[0].Rule)
	require.Equal(t, Note, r.Findings[len(r.Findings)-1].Severity)
	rules := map[string]bool{}
	for _, f := range r.Findings {
		rules[f.Rule] = true
	}
	require.Len(t, Rules, len(rules)+len(r.Unseen)+len(r.Fine))
}

// TestFilesThatCannotBeRead are named, and the others are read.
func TestFilesThatCannotBeRead(t *testing.T) {
	s := &Subject{}
	skipped, err := s.Read(folder(t, map[string]string{
		"helm/templates/a.yaml": "{{- if .Values.x }}\n",
		"m/config.pbtxt":        "backend: \"stateful\"\nfoo: 1\n",
		"n/config.pbtxt":        `backend: "stateful"`,
		".git/a.yaml":           ":",
	}))
	require.NoError(t, err)
	require.Len(t, skipped, 2)
	require.Contains(t, skipped[1], "foo")
	require.Len(t, s.Models, 1)
	require.Equal(t, "n", s.Models[0].Name)
	_, err = s.Read("/no/such/folder")
	require.Error(t, err)
}

func TestServersThatDoNotAnswer(t *testing.T) {
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	require.ErrorContains(t, (&Subject{}).Ask(t.Context(), other.URL), "404 Not Found")
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }))
	defer page.Close()
	require.ErrorContains(t, (&Subject{}).Ask(t.Context(), page.URL), "want the HTTP service of a tritonserver")
	require.Error(t, (&Subject{}).LookAtProcess(1<<30))
}

func TestVersions(t *testing.T) {
	require.Equal(t, Version{Minor: 51}, parseVersion("2.51.0"))
	require.Equal(t, Version{Release: 2410}, imageVersion("nvcr.io/nvidia/tritonserver:24.10-py3-min"))
	require.Equal(t, Version{Release: 2410}, imageVersion("tritonserver-stateful:24.10"))
	require.False(t, imageVersion("tritonserver:latest").known())
}
