package statestore

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/valkey-io/valkey-go"
)

// The fields of a key's hash. The values are keys of their own, which the fields of states name: so a value is written by
// SET, and no script copies it. Names are used once. A value that no hash names, because the server that wrote it was killed
// in between, expires; one that is gone while its hash is there was evicted, and counts as never saved.
const (
	epochField  = "epoch"  // of the owner, 16 hexadecimal digits: texts compare as numbers do
	statePrefix = "state:" // and a number of steps: names the value with so many
	// by is the store, as in a process, that made it the owner, saved the stamp of the last Save, Drop or End of this
	// owner, which looks as an epoch does, and ended the number of steps that the sequence has ended with. Only scripts
	// use these.
)

// valuePrefix begins the names of values. No namespace is empty, so no sequence has such a key.
const valuePrefix = KeyPrefix + ":"

// The scripts begin with this: owner is the epoch of the key or "", and states are what it has, the newest last.
const readHash = `
local key = KEYS[1]
local owner, by, saved, ended, states = '', '', '', nil, {}
local fields = redis.call('HGETALL', key)
for i = 1, #fields, 2 do
	local field, content = fields[i], fields[i + 1]
	local step = tonumber(string.match(field, '^state:(%d+)$'))
	if step then states[#states + 1] = {step = step, field = field, value = content}
	elseif field == 'epoch' then owner = content
	elseif field == 'by' then by = content
	elseif field == 'saved' then saved = content
	elseif field == 'ended' then ended = tonumber(content) end
end
table.sort(states, function(a, b) return a.step < b.step end)
if owner ~= '' and (#owner ~= 16 or string.find(owner, '[^0-9a-f]') or tonumber(owner, 16) >= 2^53) then
	return redis.error_reply('ERR the epoch of the key is ' .. string.format('%q', owner) .. ': want 16 hexadecimal digits')
end
local function forget(i)
	redis.call('HDEL', key, states[i].field)
	redis.call('DEL', states[i].value)
	table.remove(states, i)
end
local function expire(ttl)
	local function set(name)
		if ttl == '0' then redis.call('PERSIST', name) else redis.call('PEXPIRE', name, ttl) end
	end
	set(key)
	for _, state in ipairs(states) do set(state.value) end
end
`

// claimed makes the caller the owner, unless check returns. ARGV: the owner that it replaces, the TTL, who is the
// caller, and what check and state want. If the owner is another one, it returns that, the time in
// microseconds and who made it; else the new epoch and the state. Numbers are exact up to
// 2^53, which is microseconds until the year 2255.
func claimScript(check, state string) *script {
	return newScript(readHash + `
local now = redis.call('TIME')
local epoch = now[1] * 1000000 + now[2]
if owner ~= ARGV[1] then return {owner, string.format('%016x', epoch), by} end
` + check + `
if owner ~= '' then epoch = math.max(epoch, tonumber(owner, 16) + 1) end
epoch = string.format('%016x', epoch)
redis.call('HSET', key, 'epoch', epoch, 'by', ARGV[3])
redis.call('HDEL', key, 'saved', 'ended')
local state = false
` + state + `
expire(ARGV[2])
return {epoch, state}
`)
}

// takeState is the state that Take wants.
const takeState = `
local most = tonumber(ARGV[4])
while ended and #states > 0 and (most >= ended or states[#states].step > most) do forget(#states) end
for i = #states, 1, -1 do
	if redis.call('EXISTS', states[i].value) == 0 then forget(i) end
end
local chosen = #states
while chosen > 1 and states[chosen].step > most do chosen = chosen - 1 end
if chosen > 0 and states[chosen].step <= most then
	while #states > chosen do forget(#states) end
end
if #states > 0 then state = redis.call('GET', states[#states].value) end
`

var (
	beginScript = claimScript("", `
while #states > 0 do forget(1) end
`)

	// ARGV[4]: the largest number of steps.
	takeScript = claimScript("", takeState)

	// It leaves what is there if takeState would find nothing.
	takeSavedScript = claimScript(`
local most, found = tonumber(ARGV[4]), false
for _, state in ipairs(states) do
	local fits = not ended or most < ended and state.step <= most
	found = found or fits and redis.call('EXISTS', state.value) == 1
end
if not found then return {'', false} end
`, takeState)

	// KEYS[2]: the name of the value, which is written before. ARGV: our epoch, our stamp, the TTL, the number of steps. It
	// returns a later owner, or nil. A command that comes after a later one of the same owner does nothing: its connection
	// was stuck, and the later one came over another.
	saveScript = newScript(readHash + `
if owner > ARGV[1] or owner == ARGV[1] and saved > ARGV[2] then
	redis.call('DEL', KEYS[2])
	return owner > ARGV[1] and owner
end
if redis.call('EXISTS', KEYS[2]) == 0 then
	return redis.error_reply('ERR the value is not there: it was evicted, or took too long')
end
local state = {step = tonumber(ARGV[4]), field = 'state:' .. ARGV[4], value = KEYS[2]}
for i = #states, 1, -1 do
	if states[i].step >= state.step or redis.call('EXISTS', states[i].value) == 0 then forget(i) end
end
while #states > 1 do forget(1) end
if ended then redis.call('HDEL', key, 'ended') end
redis.call('HSET', key, 'epoch', ARGV[1], 'saved', ARGV[2], state.field, state.value)
states[#states + 1] = state
expire(ARGV[3])
return false
`)

	// ARGV: our epoch, our stamp, how long the epoch stays at most, the steps that the sequence has ended with, how long the
	// newest state with fewer stays. The other states go first: a server without memory lets us write after that.
	dropScript = newScript(readHash + `
if owner > ARGV[1] then return owner end
if owner == ARGV[1] and saved > ARGV[2] then return false end
local left = redis.call('PTTL', key)
redis.call('HDEL', key, 'saved', 'ended')
while #states > 0 and states[#states].step >= tonumber(ARGV[4]) do forget(#states) end
while #states > 1 do forget(1) end
redis.call('HSET', key, 'epoch', ARGV[1], 'saved', ARGV[2], 'ended', ARGV[4])
if left < 0 or left > tonumber(ARGV[3]) then redis.call('PEXPIRE', key, ARGV[3]) end
if #states > 0 then redis.call('PEXPIRE', states[1].value, ARGV[5]) end
return false
`)

	// It returns the values of all states, the newest first.
	getScript = newScript(readHash + `
local found = {}
for i = ended and 0 or #states, 1, -1 do
	found[#found + 1] = redis.call('GET', states[i].value)
end
return found
`)

	// It returns the owner, and the number of steps of each state, the newest first.
	ownerScript = newScript(readHash + `
local found = {owner}
for i = ended and 0 or #states, 1, -1 do
	if redis.call('EXISTS', states[i].value) == 1 then found[#found + 1] = string.sub(states[i].field, #'state:' + 1) end
end
return found
`)
)

// A script is one that the server keeps, by its hash.
type script struct {
	*valkey.Lua
	hash string
}

func newScript(text string) *script {
	hash := sha1.Sum([]byte(text))
	return &script{valkey.NewLuaScript(text), hex.EncodeToString(hash[:])}
}

// after runs the script after a command, in one go.
func (s *script) after(ctx context.Context, client valkey.Client, first valkey.Completed, keys, args []string) valkey.ValkeyResult {
	run := client.B().Evalsha().Sha1(s.hash).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
	answers := client.DoMulti(ctx, first, run)
	if answers[0].Error() != nil {
		return answers[0]
	}
	if failed, isAnswer := valkey.IsValkeyErr(answers[1].Error()); isAnswer && failed.IsNoScript() {
		return s.Exec(ctx, client, keys, args)
	}
	return answers[1]
}

func formatEpoch(epoch uint64) string { return fmt.Sprintf("%016x", epoch) }

func parseEpoch(text string) (uint64, error) {
	epoch, err := strconv.ParseUint(text, 16, 64)
	if err != nil || len(text) != 16 {
		return 0, fmt.Errorf("the epoch of the key is %q: want 16 hexadecimal digits", text)
	}
	return epoch, nil
}
