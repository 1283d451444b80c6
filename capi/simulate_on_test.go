//go:build testhooks

package main

import (
	"testing"

	"tritonstateful/ortrunner"
)

// simulateGPU gives a runtime the GPU of a fake driver.
func simulateGPU(_ testing.TB, rt *ortrunner.Runtime, driver string) { rt.SimulateGPU(driver) }
