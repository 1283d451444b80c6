package statestore

import (
	"fmt"
	"strconv"

	"github.com/valkey-io/valkey-go"
)

// The fields of a hash. The owner and the state are in one key so that they expire, are
// evicted and are lost together: a state whose epoch is gone could be overwritten by any
// server, and an epoch whose state is gone would be a sequence that begins anew unseen.
const (
	byField    = "by"    // the store, as in a process, that made it the owner
	epochField = "epoch" // of the owner, 16 hexadecimal digits: texts compare as numbers do
	savedField = "saved" // stamp of the last Save or Drop of this owner, likewise
	stateField = "state" // the value, if one is saved
)

// The scripts begin with this: owner is the epoch of the key or "".
const ownerOf = `
local key = KEYS[1]
local owner = redis.call('HGET', key, 'epoch') or ''
if owner ~= '' and (#owner ~= 16 or string.find(owner, '[^0-9a-f]') or tonumber(owner, 16) >= 2^53) then
	return redis.error_reply('ERR the epoch of the key is ' .. string.format('%q', owner) .. ': want 16 hexadecimal digits')
end
local function expire(ttl)
	if ttl == '0' then redis.call('PERSIST', key) else redis.call('PEXPIRE', key, ttl) end
end
`

// claimed makes the caller the owner. ARGV: the owner that it replaces, the TTL, who is the
// caller. If the owner is another one, it returns that, the time in microseconds and who made
// it; else the new epoch and the state. Numbers are exact up to 2^53, which is microseconds
// until the year 2255.
func claimScript(state string) *valkey.Lua {
	return valkey.NewLuaScript(ownerOf + `
local now = redis.call('TIME')
local epoch = now[1] * 1000000 + now[2]
if owner ~= ARGV[1] then return {owner, string.format('%016x', epoch), redis.call('HGET', key, 'by') or ''} end
if owner ~= '' then epoch = math.max(epoch, tonumber(owner, 16) + 1) end
epoch = string.format('%016x', epoch)
redis.call('HSET', key, 'epoch', epoch, 'by', ARGV[3])
redis.call('HDEL', key, 'saved')
local state = ` + state + `
expire(ARGV[2])
return {epoch, state}
`)
}

var (
	beginScript = claimScript(`redis.call('HDEL', key, 'state') and false`)
	takeScript  = claimScript(`redis.call('HGET', key, 'state')`)

	// ARGV: our epoch, our stamp, the TTL, the value. It returns a later owner, or nil. A command that comes after a later
	// one of the same owner does nothing: its connection was stuck, and the later one came over another.
	saveScript = valkey.NewLuaScript(ownerOf + `
if owner > ARGV[1] then return owner end
if owner == ARGV[1] and (redis.call('HGET', key, 'saved') or '') > ARGV[2] then return false end
redis.call('HSET', key, 'epoch', ARGV[1], 'saved', ARGV[2], 'state', ARGV[4])
expire(ARGV[3])
return false
`)

	// ARGV: our epoch, our stamp, how long the epoch stays at most. The state goes first: a server without memory lets us
	// write after that.
	dropScript = valkey.NewLuaScript(ownerOf + `
if owner > ARGV[1] then return owner end
if owner == ARGV[1] and (redis.call('HGET', key, 'saved') or '') > ARGV[2] then return false end
local left = redis.call('PTTL', key)
redis.call('HDEL', key, 'state')
redis.call('HSET', key, 'epoch', ARGV[1], 'saved', ARGV[2])
if left < 0 or left > tonumber(ARGV[3]) then expire(ARGV[3]) end
return false
`)
)

func formatEpoch(epoch uint64) string { return fmt.Sprintf("%016x", epoch) }

func parseEpoch(text string) (uint64, error) {
	epoch, err := strconv.ParseUint(text, 16, 64)
	if err != nil || len(text) != 16 {
		return 0, fmt.Errorf("the epoch of the key is %q: want 16 hexadecimal digits", text)
	}
	return epoch, nil
}
