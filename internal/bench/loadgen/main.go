package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
)

func main() {
	err := run(os.Args[1:], os.Stdout)
	switch {
	case err == nil:
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "loadgen:", err)
		os.Exit(1)
	}
}

// run loads the server as the arguments say and writes the result. A failed request or a wrong answer makes it fail
// after the result is written, so that a script sees both.
func run(args []string, out io.Writer) error {
	config, err := parseConfig(args)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	result, err := measure(ctx, config)
	if err != nil {
		return err
	}
	if err := write(out, result, config.asJSON); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	if result.Errors > 0 || result.Mismatches > 0 {
		return fmt.Errorf("%d requests failed, %d answers were wrong", result.Errors, result.Mismatches)
	}
	return nil
}

func write(out io.Writer, result Result, asJSON bool) error {
	if !asJSON {
		_, err := io.WriteString(out, result.String())
		return err
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(result)
}
