package faketriton

// #include <stdlib.h>
// #include "server.h"
import "C"

import "unsafe"

// MetricsOff makes the server one that was built without metrics.
func MetricsOff(off bool) { C.fake_metrics_off(C.bool(off)) }

// Metric returns a metric that exists, by its name and labels as Prometheus
// writes them: the value of a gauge or a counter, or the sum that a histogram has
// observed, and how often it was updated.
func Metric(labels string) (value float64, updates int, exists bool) {
	text := C.CString(labels)
	defer C.free(unsafe.Pointer(text))
	var v C.double
	var n C.uint64_t
	exists = bool(C.fake_metric(text, &v, &n))
	return float64(v), int(n), exists
}
