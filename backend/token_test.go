package backend

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/tensor"
)

// TestTokenTellsSequencesApart: with a state of the server's own, two sequences of one
// ID are as two of different IDs: in one batch, in one run, whichever ends first.
func TestTokenTellsSequencesApart(t *testing.T) {
	s := newServer(t)
	s.batch(startOf(7).by(1)).ok()
	s.batch(nextOf(7).by(1), startOf(7).by(2)).ok()
	s.batch(nextOf(7).by(2), nextOf(7).by(1)).ok()
	require.Len(t, s.runner.runs, 3, "both in one run")
	s.batch(startOf(7).by(3), endOf(7).by(1)).ok()
	s.batch(nextOf(7).by(1)).want("sequence 7: no such sequence is known")
	s.batch(endOf(7).by(3), nextOf(7).by(2)).ok()
	s.batch(endOf(7).by(2)).ok()
}

// TestTokenOfAnother: a token that the server has given to another sequence says that
// the one before is over. No sequence goes on with what another ID had there.
func TestTokenOfAnother(t *testing.T) {
	s := newServer(t)
	s.batch(startOf(1).by(1), startOf(2).by(2)).ok()
	s.batch(nextOf(3).by(1)).want("sequence 3: no such sequence is known")
	s.batch(startOf(3).by(1)).ok()
	s.batch(nextOf(1).by(1)).want("sequence 1: its batch slot was given")
	s.batch(startOf(4).by(2).wrongInput()).want("input")
	s.batch(nextOf(2).by(2)).want("sequence 2: its batch slot was given")
}

// TestTokenOfANewStart: clients that start again without END leave what they had, and it
// must not take the slots of others.
func TestTokenOfANewStart(t *testing.T) {
	s := newServer(t, slots(4, 4))
	s.batch(startOf(1).by(1), startOf(2).by(2)).ok()
	for token := uint64(3); token < 50; token++ {
		b := s.batch(startOf(1).by(token), nextOf(2).by(2))
		require.NoError(t, b.answers[0].err)
		require.NoError(t, b.answers[1].err)
	}
	require.Zero(t, s.in.store.Counters().RejectedFull)
	require.LessOrEqual(t, s.in.store.Usage().Live, 4)
}

// TestTokenStory imitates Triton's oldest scheduler with clients that wait for nothing.
func TestTokenStory(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	s := newServer(t, slots(40, 8))
	serves := map[uint64]int{} // the ID of each token's sequence
	for range 3000 {
		var asks []ask
		for token := uint64(1); token <= 20 && len(asks) < 8; token++ {
			id := serves[token]
			switch {
			case rng.IntN(3) > 0:
			case id == 0:
				serves[token] = 1 + rng.IntN(4)
				asks = append(asks, startOf(serves[token]).by(token))
			case rng.IntN(4) == 0:
				asks = append(asks, endOf(id).by(token))
				delete(serves, token)
			default:
				asks = append(asks, nextOf(id).by(token))
			}
		}
		rng.Shuffle(len(asks), func(i, j int) { asks[i], asks[j] = asks[j], asks[i] })
		if len(asks) > 0 {
			s.batch(asks...).ok()
		}
	}
}

// TestTokenInput: the state to ask for has room for something, and may be one that the
// model does not have.
func TestTokenInput(t *testing.T) {
	states := func(c *config.Config, states ...config.StateConfig) *config.Config {
		c.Sequence.States = states
		return c
	}
	empty := config.StateConfig{InputName: "empty", Dims: tensor.Shape{3, 0}}
	full := config.StateConfig{InputName: "full", Dims: tensor.Shape{-1}}
	require.Empty(t, (&config.Config{}).TokenInput())
	require.Empty(t, sumConfig().TokenInput())
	require.Equal(t, "full", states(sumConfig(), empty, full).TokenInput())
	direct := states(sumConfig(), full)
	direct.Sequence.Oldest = nil
	require.Empty(t, direct.TokenInput(), "the batch slot distinguishes them")

	c := states(sumConfig(), config.StateConfig{InputName: config.TokenState, OutputName: config.TokenState, DataType: "TYPE_UINT8", Dims: tensor.Shape{1}})
	in := sumModel().loaded(t, c)
	require.Equal(t, config.TokenState, in.TokenInput())
}
