package backend

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/statestore"
	"tritonstateful/internal/statestore/storetest"
	"tritonstateful/internal/status"
	"tritonstateful/statebuffer"
)

// savedIn has the states of a server saved in a store. It must be called in a bubble of
// synctest, whose clock the server has.
func savedIn(t testing.TB, store statestore.Store, checkpoint string) func(*setup) {
	began := time.Now()
	directory := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(directory, "3"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(directory, "3", "model.onnx"), []byte("weights"), 0o600))
	return func(s *setup) {
		param("state_store", "file:/not/used")(s)
		param("checkpoint", checkpoint)(s)
		s.store, s.directory = store, directory
		s.clock = func() time.Duration { return time.Hour + time.Since(began) }
	}
}

// none are the parameters of a request that has none but what edit sets.
func saying(edit func(*Parameters)) Parameters {
	p := Parameters{Step: -1}
	if edit != nil {
		edit(&p)
	}
	return p
}

var (
	told      = saying(nil)
	resumes   = saying(func(p *Parameters) { p.Resume = ResumeTry })
	requires  = saying(func(p *Parameters) { p.Resume = ResumeRequire })
	savesStep = saying(func(p *Parameters) { p.Save = true })
	keepsIt   = saying(func(p *Parameters) { p.Keep = true })
)

func atStep(n int64) Parameters { return saying(func(p *Parameters) { p.Step = n }) }

// goesOn is a server that takes over the sequences of another one.
func goesOn(t *testing.T, from *server, store statestore.Store, edits ...func(*setup)) *server {
	s := newServer(t, edits...)
	s.plain, s.count = maps.Clone(from.plain), 1000
	return s
}

// begunElsewhere is a server that has none of sequence 7, whose first step another server has made and saved.
func begunElsewhere(t *testing.T, store *storetest.Memory, edit func(*setup)) *server {
	first := newServer(t, savedIn(t, store, "steps=1"), edit)
	first.batch(startOf(7)).ok()
	synctest.Wait()
	return goesOn(t, first, store, savedIn(t, store, "steps=1"), edit)
}

// resumed sends a START that resumes, and returns what becomes of it.
func (s *server) resumed(asks ...ask) *outcome {
	s.t.Helper()
	s.batch(asks...)
	synctest.Wait()
	return s.rerun()
}

func inBubble(t *testing.T, name string, f func(*testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// heldNow are the requests of the last batch that were held, and whether they are.
func (s *server) heldNow() map[int]bool {
	s.last.mu.Lock()
	defer s.last.mu.Unlock()
	return maps.Clone(s.last.held)
}

// onRequest is a test in which a request that does not ask for it resumes nothing.
func onRequest(test func(*testing.T, func(*setup))) func(*testing.T, func(*setup)) {
	return func(t *testing.T, on func(*setup)) {
		test(t, func(s *setup) {
			on(s)
			param("resume", "on_request")(s)
		})
	}
}

func keyOf(number uint64) statebuffer.Key { return statebuffer.Key{Number: number} }

const key7 = "tritonstateful:model/3:7"

func TestResume(t *testing.T) { eachQueueing(t, onRequest(resume)) }

func resume(t *testing.T, on func(*setup)) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		first := newServer(t, savedIn(t, store, "steps=1"), on)
		first.batch(startOf(7), startOf(8)).ok()
		first.batch(nextOf(7), nextOf(8)).ok()
		synctest.Wait()
		second := goesOn(t, first, store, savedIn(t, store, "steps=1"), on)
		second.forget(8)
		o := second.resumed(startOf(7).saying(resumes)).ok()
		require.Equal(t, &AnswerParameters{Step: 3, SavedStep: 2, Resumed: true}, o.answers[0].parameters)
		require.Equal(t, [][]bool{{false}}, second.runner.resets, "the model sees no start")
		second.batch(nextOf(7)).ok()
		synctest.Wait()

		first.batch(nextOf(7)).answered(t) // it does not know yet
		synctest.Wait()                    // its save is refused
		first.forget(7)
		first.batch(nextOf(7)).want("taken over by another server")
		first.batch(nextOf(8)).ok()
		second.batch(nextOf(7)).ok()
	})
}

func TestResumeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		s := newServer(t, savedIn(t, store, "steps=1"))
		s.resumed(startOf(7).saying(requires)).want("no state of it is saved").code(status.NotFound)
		o := s.resumed(startOf(7).saying(resumes)).ok()
		require.Equal(t, &AnswerParameters{Step: 1}, o.answers[0].parameters)
		require.Equal(t, [][]bool{{true}}, s.runner.resets)
		s.batch(nextOf(7)).ok()
		s.batch(nextOf(7).saying(resumes)).want("want the START flag")
		s.batch(endOf(7)).ok()
		synctest.Wait()
		s.resumed(startOf(7).saying(requires)).want("no state of it is saved")
	})
}

// TestResumeLive: a sequence that is live here goes on, unless another server has taken it
// over meanwhile.
func TestResumeLive(t *testing.T) { eachQueueing(t, onRequest(resumeLive)) }

func resumeLive(t *testing.T, on func(*setup)) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		first := newServer(t, savedIn(t, store, "steps=2"), on)
		first.batch(startOf(7)).ok()
		first.batch(nextOf(7)).ok()
		synctest.Wait()
		first.batch(nextOf(7)).ok() // not saved
		synctest.Wait()
		o := first.resumed(startOf(7).saying(requires)).ok()
		require.Equal(t, &AnswerParameters{Step: 4, SavedStep: 2, Resumed: true}, o.answers[0].parameters)
		synctest.Wait()
		second := goesOn(t, first, store, savedIn(t, store, "steps=1"), on)
		second.resumed(startOf(7).saying(requires)).ok()
		second.batch(nextOf(7)).ok()
		synctest.Wait()
		first.plain = maps.Clone(second.plain)
		first.resumed(startOf(7).saying(requires)).ok()
		synctest.Wait()
		require.Equal(t, uint64(7), first.in.store.Live(keyOf(7)).Steps())
	})
}

// TestStepsLost: without replay, what is not saved is lost, and no more.
func TestStepsLost(t *testing.T) { eachQueueing(t, onRequest(stepsLost)) }

func stepsLost(t *testing.T, on func(*setup)) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		first := newServer(t, savedIn(t, store, "interval=100"), on)
		first.batch(startOf(7)).ok()
		saved := maps.Clone(first.plain)
		time.Sleep(150 * time.Millisecond)
		synctest.Wait()
		first.batch(nextOf(7)).ok()
		time.Sleep(50 * time.Millisecond)
		second := goesOn(t, first, store, savedIn(t, store, "interval=100"), on)
		second.plain = saved
		o := second.resumed(startOf(7).saying(resumes)).ok()
		require.Equal(t, &AnswerParameters{Step: 2, SavedStep: 1, Resumed: true}, o.answers[0].parameters)
	})
}

func TestSteps(t *testing.T) { eachQueueing(t, onRequest(steps)) }

func steps(t *testing.T, on func(*setup)) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, on) // without a store
		s.batch(startOf(7).saying(atStep(0))).ok()
		s.batch(nextOf(7).saying(atStep(0))).want("step 0 was done before: expected step 1").code(status.AlreadyExists)
		s.batch(nextOf(7).saying(atStep(2))).want("step 2 leaves a gap: expected step 1").code(status.InvalidArg)
		o := s.batch(nextOf(7).saying(atStep(1)), nextOf(7).saying(atStep(2))).ok()
		require.Equal(t, &AnswerParameters{Step: 2}, o.answers[0].parameters)
		require.Equal(t, &AnswerParameters{Step: 3}, o.answers[1].parameters)
		s.batch(nextOf(7).saying(savesStep)).want("states of this model are not saved").code(status.InvalidArg)
		s.batch(startOf(8).saying(requires)).want("want the parameter state_store")
		s.batch(startOf(8).saying(resumes)).ok()
		o = s.batch(endOf(7).saying(atStep(3))).ok()
		require.Equal(t, &AnswerParameters{Step: 4}, o.answers[0].parameters)
	})
}

// TestEndOfSaved: END deletes what is saved, unless the client says otherwise.
func TestEndOfSaved(t *testing.T) { eachQueueing(t, onRequest(endOfSaved)) }

func endOfSaved(t *testing.T, on func(*setup)) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		s := newServer(t, savedIn(t, store, "steps=1"), on)
		s.batch(startOf(7)).ok()
		synctest.Wait()
		require.NotNil(t, store.Value(key7))
		s.batch(endOf(7)).ok()
		synctest.Wait()
		require.Nil(t, store.Value(key7))
		s.batch(startOf(7)).ok()
		s.batch(nextOf(7)).ok()
		s.batch(endOf(7).saying(keepsIt))
		synctest.Wait()
		require.NoError(t, s.last.answers[0].err)
		require.Equal(t, &AnswerParameters{Step: 3, SavedStep: 3}, s.last.answers[0].parameters)
		require.Nil(t, s.in.store.Live(keyOf(7)))
		s.resumed(startOf(7).saying(requires)).ok()
		s.batch(endOf(7)).ok()
	})
}

// TestBeginDeletes: what an earlier sequence of the ID has saved is gone when it begins anew.
func TestBeginDeletes(t *testing.T) { eachQueueing(t, onRequest(beginDeletes)) }

func beginDeletes(t *testing.T, on func(*setup)) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		s := newServer(t, savedIn(t, store, "steps=3"), on)
		for range 2 {
			s.batch(startOf(7)).ok()
			synctest.Wait()
			require.Nil(t, store.Value(key7))
			s.batch(nextOf(7)).ok()
			s.batch(nextOf(7)).ok()
			synctest.Wait()
			require.NotNil(t, store.Value(key7))
		}
		s.batch(wholeOf(7)).ok()
		synctest.Wait()
		require.Nil(t, store.Value(key7))
	})
}

// TestSync: the answer waits until the state is saved; where it is not, the sequence is gone.
func TestSync(t *testing.T) { eachQueueing(t, onRequest(syncedSteps)) }

func syncedSteps(t *testing.T, on func(*setup)) {
	synctest.Test(t, func(t *testing.T) {
		fail, store := error(nil), &storetest.Memory{}
		store.Before = func(ctx context.Context, method, _ string) error {
			time.Sleep(time.Millisecond)
			return fail
		}
		s := newServer(t, savedIn(t, store, "sync"), on)
		s.batch(startOf(7), startOf(8))
		synctest.Wait()
		require.Equal(t, map[int]bool{0: true, 1: true}, s.heldNow())
		time.Sleep(3 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, map[int]bool{0: false, 1: false}, s.heldNow())
		s.batch(nextOf(7).saying(told))
		time.Sleep(3 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, &AnswerParameters{Step: 2, SavedStep: 2}, s.last.answers[0].parameters)
		fail = errors.New("store is down")
		s.batch(nextOf(7))
		time.Sleep(3 * time.Millisecond)
		synctest.Wait()
		require.ErrorContains(t, s.last.answers[0].err, "store is down")
		require.Equal(t, status.Unavailable, status.CodeOf(s.last.answers[0].err))
		s.batch(nextOf(8)) // at once: the store is not asked
		synctest.Wait()
		require.ErrorContains(t, s.last.answers[0].err, "the store has failed")
		s.forget(7, 8)
		s.batch(nextOf(7), nextOf(8)).want("could not be saved", "could not be saved")
		fail = nil
		time.Sleep(time.Second)
		s.batch(startOf(9))
		time.Sleep(5 * time.Millisecond)
		synctest.Wait()
		require.NoError(t, s.last.answers[0].err)
	})
}

// TestSaveOnRequest: a request may ask for it, whatever else is saved.
func TestSaveOnRequest(t *testing.T) { eachQueueing(t, onRequest(saveOnRequest)) }

func saveOnRequest(t *testing.T, on func(*setup)) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		s := newServer(t, savedIn(t, store, "request"), on)
		s.batch(startOf(7)).ok()
		s.batch(nextOf(7)).ok()
		synctest.Wait()
		require.Nil(t, store.Value(key7))
		s.batch(nextOf(7).saying(savesStep))
		synctest.Wait()
		require.Equal(t, &AnswerParameters{Step: 3, SavedStep: 3}, s.last.answers[0].parameters)
		o := s.batch(nextOf(7).saying(told)).ok()
		require.Equal(t, &AnswerParameters{Step: 4, SavedStep: 3}, o.answers[0].parameters)
	})
}

// TestFlush: an unload saves what is not saved.
func TestFlush(t *testing.T) { eachQueueing(t, onRequest(flush)) }

func flush(t *testing.T, on func(*setup)) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		first := newServer(t, savedIn(t, store, "steps=100"), slots(40, 8), on)
		ids := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24}
		for _, id := range ids {
			first.batch(startOf(id)).ok()
			first.batch(nextOf(id)).ok()
		}
		second := goesOn(t, first, store, savedIn(t, store, "steps=100"), slots(40, 8), on)
		first.in.Close()
		first.in = second.in // which its cleanup closes again
		second.plain = map[string]*plainSequence{}
		for _, id := range ids {
			who := startOf(id)
			second.plain[who.who()] = first.plain[who.who()]
			second.resumed(startOf(id).saying(requires)).ok()
		}
	})
}

// TestRequestsWait: what comes of a sequence while the store is asked for its state runs after
// it, in its order; others do not wait.
func TestRequestsWait(t *testing.T) { eachQueueing(t, onRequest(requestsWait)) }

func requestsWait(t *testing.T, on func(*setup)) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		first := newServer(t, savedIn(t, store, "steps=1"), on)
		first.batch(startOf(7)).ok()
		synctest.Wait()
		store.Before = func(context.Context, string, string) error { time.Sleep(time.Second / 2); return nil }
		s := goesOn(t, first, store, savedIn(t, store, "steps=1"), on)
		s.batch(startOf(7).saying(resumes), startOf(8))
		require.NoError(t, s.last.answers[1].err)
		s.batch(nextOf(8), nextOf(7))
		require.NoError(t, s.last.answers[0].err)
		s.batch(nextOf(7), nextOf(8))
		time.Sleep(2 * time.Second)
		o := s.rerun().ok()
		require.Len(t, o.answers, 3)
		s.batch(nextOf(7), nextOf(8)).ok()
	})
}
