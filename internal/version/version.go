// Package version is the one place that says which version this is. The library, the command and the archives of a
// release all take it from here.
package version

// Number is the version by Semantic Versioning, without a leading v: that of the release that is worked on, or of the
// release itself. docs/release.md says what may change with which part of it.
const Number = "0.1.0"

// commit is the commit that this was built from. The build sets it, by -X; what go build made by itself has none.
var commit string

// Commit returns the short hash of the commit that this was built from, with "-dirty" if files had been changed, or
// "unknown".
func Commit() string {
	if commit == "" {
		return "unknown"
	}
	return commit
}
