package kserve

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of ModelStatistics and the messages inside it.
const (
	statisticsModels = 1

	modelInferenceCount = 4
	modelExecutionCount = 5
	modelInferenceStats = 6

	statsSuccess       = 1
	statsQueue         = 3
	statsComputeInput  = 4
	statsComputeInfer  = 5
	statsComputeOutput = 6

	durationCount = 1
	durationNanos = 2
)

// StatisticsRequest asks for the counters of all versions of one model.
type StatisticsRequest struct{ Model string }

// Wire returns the encoded message.
func (r StatisticsRequest) Wire() []byte { return appendText(nil, requestModel, r.Model) }

// Statistics are a model's counters since it was loaded, summed over its versions. Times are totals over all
// successful requests; each request of a batch counts the batch's whole time.
type Statistics struct {
	Inferences    uint64 // requests, each counted with its own batch size
	Executions    uint64 // calls of the backend
	Successes     uint64 // answered requests
	Queue         time.Duration
	ComputeInput  time.Duration
	ComputeInfer  time.Duration
	ComputeOutput time.Duration
}

// Since returns what was added after an earlier reading.
func (s Statistics) Since(earlier Statistics) Statistics {
	return Statistics{
		Inferences:    s.Inferences - earlier.Inferences,
		Executions:    s.Executions - earlier.Executions,
		Successes:     s.Successes - earlier.Successes,
		Queue:         s.Queue - earlier.Queue,
		ComputeInput:  s.ComputeInput - earlier.ComputeInput,
		ComputeInfer:  s.ComputeInfer - earlier.ComputeInfer,
		ComputeOutput: s.ComputeOutput - earlier.ComputeOutput,
	}
}

// MeanBatch is the mean number of requests that the backend was given at once; 0 if it was never called.
func (s Statistics) MeanBatch() float64 {
	if s.Executions == 0 {
		return 0
	}
	return float64(s.Inferences) / float64(s.Executions)
}

// Buffer returns n fresh bytes: statistics are read twice a run.
func (s *Statistics) Buffer(n int) []byte { return make([]byte, n) }

// Parse decodes a ModelStatisticsResponse.
func (s *Statistics) Parse(message []byte) error {
	*s = Statistics{}
	return eachField(message, func(number protowire.Number, value field) error {
		if number != statisticsModels {
			return nil
		}
		return s.addModel(value.Bytes)
	})
}

func (s *Statistics) addModel(message []byte) error {
	return eachField(message, func(number protowire.Number, value field) error {
		switch number {
		case modelInferenceCount:
			s.Inferences += value.Number
		case modelExecutionCount:
			s.Executions += value.Number
		case modelInferenceStats:
			return s.addTimes(value.Bytes)
		}
		return nil
	})
}

func (s *Statistics) addTimes(message []byte) error {
	var parts [statsComputeOutput + 1]durations // by field number
	err := eachField(message, func(number protowire.Number, value field) (err error) {
		if int(number) < len(parts) {
			parts[number], err = parseDurations(value.Bytes)
		}
		return err
	})
	s.Successes += parts[statsSuccess].count
	s.Queue += parts[statsQueue].total
	s.ComputeInput += parts[statsComputeInput].total
	s.ComputeInfer += parts[statsComputeInfer].total
	s.ComputeOutput += parts[statsComputeOutput].total
	return err
}

// durations is one StatisticDuration: how often something was timed, and the sum.
type durations struct {
	count uint64
	total time.Duration
}

func parseDurations(message []byte) (d durations, err error) {
	err = eachField(message, func(number protowire.Number, value field) error {
		switch number {
		case durationCount:
			d.count = value.Number
		case durationNanos:
			d.total = time.Duration(value.Number)
		}
		return nil
	})
	return d, err
}
