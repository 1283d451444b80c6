// Package cli is the command tritonstateful. Each verb has a file that is named like it: it makes a cobra.Command, and calls
// packages below this one for what is more than words. Nothing imports internal/cli but the command itself.
//
// A verb prints its result by [command.emit], as JSON with --json and as text without it, and returns
//
//   - nil if all is well (exit code 0),
//   - an error, which is printed, if it could not do its work (1),
//   - errFound if it could, and the result is that a question is open or a check has failed (2),
//   - a usageError for arguments that make no sense (64).
//
// JSON has a field schema. Its number grows with a change after which a reader of the old one would be wrong; further
// fields may come without one. docs/command.md describes both.
package cli
