//go:build testhooks

package ortrunner

import "testing"

// simulateGPU gives a runtime the GPU of a fake driver.
func simulateGPU(_ testing.TB, rt *Runtime, driver string) { rt.SimulateGPU(driver) }
