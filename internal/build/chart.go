package build

import "path/filepath"

// helm is the program that reads charts, at the version that is tried. Compiling it takes
// two minutes, so it has a verb of its own.
const helm = "helm.sh/helm/v3/cmd/helm@v3.19.0"

// testChart compiles Helm once, to build/helm, and tests the chart in docs/deploy.
func (t *tree) testChart() error {
	if err := t.buildForTests(); err != nil {
		return err
	}
	program := t.path("build", "helm", "helm")
	if err := t.refresh(program, helm, func() error {
		return t.with("GOBIN="+filepath.Dir(program), "CGO_ENABLED=0").run("go", "install", helm)
	}); err != nil {
		return err
	}
	return t.with("HELM="+program).run(t.python(), "-m", "pytest", "-q", "scripts/e2e/test_chart.py")
}
