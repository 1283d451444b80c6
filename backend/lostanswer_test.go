package backend

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/statestore/storetest"
	"tritonstateful/internal/status"
)

// A step can be saved and its answer lost, with the server or with the connection. Its client
// asks for the step again, and must get the same answer.

func resumesAt(n int64) Parameters {
	return saying(func(p *Parameters) { p.Resume, p.Step = ResumeTry, n })
}

// TestLostAnswer: the sequence goes on from the state before the lost step.
func TestLostAnswer(t *testing.T) { eachScheduler(t, onRequest(lostAnswer)) }

func lostAnswer(t *testing.T, on func(*setup)) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		first := newServer(t, savedIn(t, store, "steps=3"), on)
		first.batch(startOf(7)).ok()
		var at3 map[string]*plainSequence
		for step := 1; step < 6; step++ {
			if step == 3 {
				synctest.Wait()
				at3 = maps.Clone(first.plain)
			}
			first.batch(nextOf(7)).ok()
		}
		synctest.Wait() // 3 and 6 are saved; the client has 5 answers
		second := goesOn(t, first, store, savedIn(t, store, "steps=3"), on)
		second.plain = at3
		second.resumed(startOf(7).saying(resumesAt(5))).want("step 5 leaves a gap: expected step 3").code(status.InvalidArg)
		o := second.resumed(startOf(7).saying(resumesAt(3))).ok()
		require.Equal(t, &AnswerParameters{Step: 4, SavedStep: 3, Resumed: true}, o.answers[0].parameters)
		second.batch(nextOf(7).saying(atStep(4))).ok()
		second.batch(nextOf(7).saying(atStep(5))).ok()
		synctest.Wait()

		first.batch(nextOf(7)).answered(t)
		first.batch(nextOf(7)).answered(t)
		first.batch(nextOf(7)).answered(t)
		synctest.Wait() // its save is refused
		first.forget(7)
		first.batch(nextOf(7)).want("taken over by another server")
		third := goesOn(t, second, store, savedIn(t, store, "steps=3"), on)
		third.resumed(startOf(7).saying(resumes)).ok()
	})
}

// TestLostAnswerOfALiveSequence: the server lives on, and goes back. With sync, each step that is
// saved can be repeated at once.
func TestLostAnswerOfALiveSequence(t *testing.T) { eachScheduler(t, onRequest(lostAnswerLive)) }

func lostAnswerLive(t *testing.T, on func(*setup)) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		s := newServer(t, savedIn(t, store, "sync"), on)
		s.batch(startOf(7))
		synctest.Wait()
		s.batch(nextOf(7))
		synctest.Wait()
		for step := range int64(2) { // the answer is lost, and that to the repetition
			before := maps.Clone(s.plain)
			s.batch(nextOf(7))
			synctest.Wait()
			require.NoError(t, s.last.answers[0].err)
			s.plain = maps.Clone(before)
			s.resumed(startOf(7).saying(resumesAt(2 + step)))
			synctest.Wait()
			require.NoError(t, s.last.answers[0].err)
			require.Equal(t, &AnswerParameters{Step: 3 + step, SavedStep: 3 + step, Resumed: true}, s.last.answers[0].parameters)
			s.plain = maps.Clone(before)
			s.resumed(startOf(7).saying(resumesAt(2 + step)))
			synctest.Wait()
			require.NoError(t, s.last.answers[0].err)
		}
		s.batch(nextOf(7).saying(atStep(4)))
		synctest.Wait()
		require.NoError(t, s.last.answers[0].err)
		require.Empty(t, s.log.having("taken over"))
	})
}

// TestLostAnswerThatCannotBeRepeated: the sequence goes on as it is, and says where it is.
func TestLostAnswerThatCannotBeRepeated(t *testing.T) {
	eachScheduler(t, onRequest(lostAnswerForGood))
}

func lostAnswerForGood(t *testing.T, on func(*setup)) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		s := newServer(t, savedIn(t, store, "steps=3"), on)
		s.batch(startOf(7)).ok()
		s.batch(nextOf(7)).ok()
		synctest.Wait() // nothing is saved
		s.resumed(startOf(7).saying(resumesAt(1))).want("step 1 was done before: expected step 2").code(status.AlreadyExists)
		s.batch(nextOf(7)).ok()
		synctest.Wait() // 3 steps are
		s.resumed(startOf(7).saying(resumesAt(2))).want("step 2 was done before: expected step 3").code(status.AlreadyExists)
		s.batch(nextOf(7)).ok()
		second := goesOn(t, s, store, savedIn(t, store, "steps=3"), on)
		second.plain = maps.Clone(s.plain)
		store.Before = func(_ context.Context, method, _ string) error {
			if method == "Owner" {
				return errors.New("store is down")
			}
			return nil
		}
		s.resumed(startOf(7).saying(resumesAt(3))).want("store is down").code(status.Unavailable)
		store.Before = nil
		o := s.resumed(startOf(7).saying(resumesAt(4))).ok()
		require.EqualValues(t, 5, o.answers[0].parameters.Step)
	})
}

// TestLostAnswerBeforeItsSave: a save that is under way is waited for.
func TestLostAnswerBeforeItsSave(t *testing.T) { eachScheduler(t, onRequest(lostAnswerBeforeSave)) }

func lostAnswerBeforeSave(t *testing.T, on func(*setup)) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		s := newServer(t, savedIn(t, store, "steps=1"), on)
		s.batch(startOf(7)).ok()
		synctest.Wait()
		before := maps.Clone(s.plain)
		store.Before = func(_ context.Context, method, _ string) error {
			if method == "Save" {
				time.Sleep(time.Second / 2)
			}
			return nil
		}
		s.batch(nextOf(7)).ok()
		time.Sleep(time.Millisecond)
		s.plain = before
		s.batch(startOf(7).saying(resumesAt(1)))
		time.Sleep(time.Second)
		s.rerun().ok()
		synctest.Wait()
		time.Sleep(time.Second)
		require.Empty(t, s.log.having("taken over"))
		s.batch(nextOf(7).saying(atStep(2))).ok()
	})
}

// TestLostAnswerWhileASaveIsDue: a save does not push out the state that a live sequence goes back to.
func TestLostAnswerWhileASaveIsDue(t *testing.T) {
	eachScheduler(t, onRequest(lostAnswerWhileDue))
}

func lostAnswerWhileDue(t *testing.T, on func(*setup)) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		s := newServer(t, savedIn(t, store, "interval=1000"), on)
		s.batch(startOf(7)).ok()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		before := maps.Clone(s.plain)
		s.batch(nextOf(7)).ok()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		s.batch(nextOf(7)).ok()
		time.Sleep(900 * time.Millisecond)
		synctest.Wait() // 3 steps are made, states of 2 and of 1 are saved, and that of 3 is soon due
		store.Before = func(_ context.Context, method, _ string) error {
			if method == "Take" {
				time.Sleep(time.Second / 2)
			}
			return nil
		}
		s.plain = before
		s.batch(startOf(7).saying(resumesAt(1)))
		time.Sleep(time.Second)
		synctest.Wait()
		o := s.rerun().ok()
		require.EqualValues(t, 2, o.answers[0].parameters.Step)
		require.True(t, o.answers[0].parameters.Resumed)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		s.batch(nextOf(7).saying(atStep(2))).ok()
	})
}

// TestSavedAfterTheStoreFailed: a sequence that could not go back is saved as before.
func TestSavedAfterTheStoreFailed(t *testing.T) {
	for _, down := range []string{"Owner", "Take"} {
		inBubble(t, down, func(t *testing.T) {
			store := &storetest.Memory{}
			s := newServer(t, savedIn(t, store, "interval=1000"))
			for range 2 {
				s.batch(startOf(7)).ok()
				time.Sleep(2 * time.Second)
				synctest.Wait()
			}
			saves := store.Saves()
			store.Before = func(_ context.Context, method, _ string) error {
				if method == down {
					return errors.New("store is down")
				}
				return nil
			}
			s.batch(nextOf(7)).ok()
			now := maps.Clone(s.plain)
			s.resumed(startOf(7).saying(resumesAt(1))).want("store is down").code(status.Unavailable)
			require.Equal(t, saves, store.Saves())
			time.Sleep(2 * time.Second)
			synctest.Wait()
			require.Equal(t, saves+1, store.Saves())
			s.plain = now
			s.batch(nextOf(7).saying(atStep(2))).ok()
		})
	}
}

// TestLostAnswerOfAFreeSequence: a request that names its step goes back, too, without stateful_resume.
func TestLostAnswerOfAFreeSequence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		first := newServer(t, savedIn(t, store, "steps=1"), free)
		first.batch(startOf(7)).ok()
		synctest.Wait()
		before := maps.Clone(first.plain)
		first.batch(nextOf(7)).ok()
		synctest.Wait() // its answer is lost, and then the server
		second := goesOn(t, first, store, savedIn(t, store, "steps=1"), free)
		second.plain = before
		second.batch(nextOf(7).saying(atStep(1)))
		synctest.Wait()
		o := second.rerun().ok()
		require.EqualValues(t, 2, o.answers[0].parameters.Step)
	})
}

// TestLostAnswerToTheFirst: before its first step a sequence has no state to go on with, so it begins again.
func TestLostAnswerToTheFirst(t *testing.T) { eachScheduler(t, onRequest(lostAnswerToFirst)) }

func lostAnswerToFirst(t *testing.T, on func(*setup)) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		s := newServer(t, savedIn(t, store, "steps=1"), on)
		first := startOf(7).saying(resumesAt(0))
		for _, at := range []*server{s, goesOn(t, s, store, savedIn(t, store, "steps=1"), on)} {
			for range 2 {
				o := at.batch(first).ok()
				require.Equal(t, &AnswerParameters{Step: 1}, o.answers[0].parameters)
				synctest.Wait()
			}
			s = at
		}
		s.batch(nextOf(7).saying(atStep(1))).ok()
		synctest.Wait()
		s.resumed(startOf(7).saying(requiresAt(0))).want("step 0 was done before: expected step 2").code(status.AlreadyExists)
		require.NotNil(t, store.Value(key7))
		s.batch(nextOf(7).saying(atStep(2))).ok()
	})
}

// TestAskedInVain: where nothing is saved, a request that cannot begin the sequence leaves it to the server that has it. Its
// client, or a proxy, was wrong to think that the server was gone.
func TestAskedInVain(t *testing.T) {
	asked := map[string]ask{
		"require":      startOf(7).saying(requires),
		"require step": startOf(7).saying(requiresAt(1)),
		"try step":     startOf(7).saying(resumesAt(1)),
	}
	for name, a := range asked {
		inBubble(t, name, func(t *testing.T) { askedInVain(t, a) })
		inBubble(t, name+" free", func(t *testing.T) { askedInVain(t, a, free) })
	}
	inBubble(t, "miss", func(t *testing.T) { askedInVain(t, nextOf(7), free) })
	inBubble(t, "miss step", func(t *testing.T) {
		askedInVain(t, nextOf(7).saying(atStep(1)), free, param("begin", "implicit"))
	})
}

func askedInVain(t *testing.T, a ask, on ...func(*setup)) {
	store := &storetest.Memory{}
	edits := append([]func(*setup){savedIn(t, store, "steps=3")}, on...)
	s := newServer(t, edits...)
	s.batch(startOf(7)).ok()
	synctest.Wait()
	other := newServer(t, edits...)
	o := other.resumed(a)
	require.Error(t, o.answers[0].err)
	s.batch(nextOf(7)).ok()
	s.batch(nextOf(7)).ok()
	synctest.Wait() // saved
	require.Empty(t, s.log.having("taken over"))
	s.batch(nextOf(7).saying(atStep(3))).ok()
}

// TestEndIsNotTakenBack by a client that asks for a step before those that are kept, or says nothing of steps.
func TestEndIsNotTakenBack(t *testing.T) { eachScheduler(t, onRequest(endNotTakenBack)) }

func endNotTakenBack(t *testing.T, on func(*setup)) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		s := newServer(t, savedIn(t, store, "steps=1"), on)
		s.batch(startOf(7)).ok()
		synctest.Wait()
		s.batch(nextOf(7)).ok()
		synctest.Wait()
		s.batch(endOf(7)).ok()
		synctest.Wait()
		for _, wants := range []Parameters{requiresAt(1), requires} {
			s.resumed(startOf(7).saying(wants)).want("no state of it is saved")
			require.Nil(t, store.Value(key7))
		}
		s.batch(startOf(7)).ok() // the ID is used again
		synctest.Wait()
		goesOn(t, s, store, savedIn(t, store, "steps=1"), on).resumed(startOf(7).saying(requiresAt(2))).want("step 2 leaves a gap: expected step 1")
	})
}

func requiresAt(n int64) Parameters {
	return saying(func(p *Parameters) { p.Resume, p.Step = ResumeRequire, n })
}

// TestEndOnMiss: where a request without a parameter continues a sequence on any server, an END leaves
// nothing to continue.
func TestEndOnMiss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		s := newServer(t, savedIn(t, store, "steps=1"), free)
		s.batch(startOf(7)).ok()
		synctest.Wait()
		s.rerun()
		require.NotNil(t, store.Value(key7))
		s.batch(endOf(7)).ok()
		synctest.Wait()
		require.Nil(t, store.Value(key7))
	})
}

// TestLostAnswerToAnEnd: what is saved stays for a while, for a client that asks for the END once
// more.
func TestLostAnswerToAnEnd(t *testing.T) { eachScheduler(t, onRequest(lostAnswerToEnd)) }

func lostAnswerToEnd(t *testing.T, on func(*setup)) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		s := newServer(t, savedIn(t, store, "steps=1"), on)
		s.batch(startOf(7)).ok()
		synctest.Wait()
		s.batch(nextOf(7)).ok()
		synctest.Wait()
		before := maps.Clone(s.plain)
		s.batch(endOf(7)).ok()
		synctest.Wait()
		second := goesOn(t, s, store, savedIn(t, store, "steps=1"), on) // should this one be killed now
		second.plain = maps.Clone(before)
		s.plain = before
		o := s.resumed(startOf(7).saying(requiresAt(2))).ok()
		require.Equal(t, &AnswerParameters{Step: 3, SavedStep: 2, Resumed: true}, o.answers[0].parameters)
		synctest.Wait()
		second.resumed(startOf(7).saying(requiresAt(2))).ok()
		second.batch(endOf(7).saying(atStep(3))).ok()
		synctest.Wait()
		require.Nil(t, store.Value(key7))
		second.resumed(startOf(7).saying(requiresAt(4))).want("no state of it is saved")
		s.batch(nextOf(7)).answered(t)
	})
}
