"""The Lua scripts for operations that must be atomic on the server (Redis 6.2 or newer).

A link is alive as long as it listens at its inbox and gives signs of life. The first ends as soon as its process
dies, the second when the network is cut. All links of a bus are connected to the node that holds the keys of the
bus, so ``PUBSUB NUMSUB`` sees each of them, in a cluster, too.
"""

from __future__ import annotations

import asyncio
from typing import Any

from operad_redis._connection import Argument, Pipeline, Script, pack

_NOW = """
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
"""

# KEYS: operation, load. ARGV: streams, inboxes, turn, event, redelivered, operation (for reaping), when it was
# first dispatched if this is not the first time (ms of the server's clock, else '').
# Picks the member of each group with the fewest unfinished requests; among equals the turn decides, so that the
# requests of a caller go round. Returns the links that got it.
DISPATCH = """
local members = redis.call('SMEMBERS', KEYS[1])
local count = #members
if count == 0 then return {} end
local channels, links, groups = {}, {}, {}
for i = 1, count do
  local link, group = string.match(members[i], '^(%S+) (.*)$')
  links[i], groups[i], channels[i] = link, group, ARGV[2] .. link
end
local listening = redis.call('PUBSUB', 'NUMSUB', unpack(channels))
local loads = redis.call('HMGET', KEYS[2], unpack(links))
local chosen = {}
for turn = 1, count do
  local i = (turn + ARGV[3]) % count + 1
  if listening[2 * i] > 0 then
    local best = chosen[groups[i]]
    if not best or tonumber(loads[i] or 0) < tonumber(loads[best] or 0) then chosen[groups[i]] = i end
  end
end
local taken = {}
local entry = {'e', ARGV[4], 'r', ARGV[5], 'o', ARGV[6]}
if ARGV[7] ~= '' then
  entry[7], entry[8] = 't', ARGV[7]
end
for _, i in pairs(chosen) do
  if redis.call('XADD', ARGV[1] .. links[i], 'NOMKSTREAM', '*', unpack(entry)) then
    redis.call('HINCRBY', KEYS[2], links[i], 1)
    taken[#taken + 1] = links[i]
  end
end
return taken
"""

# KEYS: stream, load. ARGV: link, entry id.
DONE = """
if redis.call('XACK', KEYS[1], 'operad', ARGV[2]) == 1 then
  redis.call('XDEL', KEYS[1], ARGV[2])
  redis.call('HINCRBY', KEYS[2], ARGV[1], -1)
end
"""

# KEYS: links, load, stream. ARGV: link, lifetime of the stream in ms. Returns the server's clock, in ms.
ENROLL = (
    _NOW
    + """
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('HSETNX', KEYS[2], ARGV[1], 0)
redis.pcall('XGROUP', 'CREATE', KEYS[3], 'operad', '0', 'MKSTREAM')
redis.call('PEXPIRE', KEYS[3], ARGV[2])
return now
"""
)

# KEYS: operation, served. ARGV: link, group.
REGISTER = """
redis.call('SADD', KEYS[1], ARGV[1] .. ' ' .. ARGV[2])
redis.call('SADD', KEYS[2], ARGV[2] .. '\\n' .. KEYS[1])
"""

UNREGISTER = """
redis.call('SREM', KEYS[1], ARGV[1] .. ' ' .. ARGV[2])
redis.call('SREM', KEYS[2], ARGV[2] .. '\\n' .. KEYS[1])
"""

# KEYS: links, stream, served. ARGV: link, inboxes, lease in ms, lifetime of the stream in ms, how many to look at.
# Each looks after the links that gave no sign of life for longest, and after a few others by chance, so that the
# work of all grows with their number and not with its square: with 8, a link that has gone is not looked at
# within a beat about once in 3,000 times, and within two beats about once in 10 million.
# Returns whether the link is still enrolled, the links that are dead, and the server's clock, in ms. One whose
# stream is gone is not: a server that evicts keys takes those with a lifetime first, and its reader would wait on.
BEAT = (
    _NOW
    + """
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return {0, {}, now} end
if redis.call('PEXPIRE', KEYS[2], ARGV[4]) == 0 then return {0, {}, now} end
redis.call('ZADD', KEYS[1], now, ARGV[1])
local dead, seen = {}, {[ARGV[1]] = true}
for _, link in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[3], 'LIMIT', 0, ARGV[5])) do
  if not seen[link] then
    seen[link] = true
    dead[#dead + 1] = link
  end
end
for _, link in ipairs(redis.call('ZRANDMEMBER', KEYS[1], ARGV[5])) do
  if not seen[link] and redis.call('PUBSUB', 'NUMSUB', ARGV[2] .. link)[2] == 0 then
    dead[#dead + 1] = link
  end
end
return {1, dead, now}
"""
)

# KEYS: links, load, stream, served, dead. ARGV: link, inbox channel, lease in ms ("" reaps it in any case).
# Takes a link off the bus. Returns the id up to which its requests had been delivered, or nothing if another link
# took it off, it is alive, or it left no request.
REAP = (
    _NOW
    + """
local seen = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not seen then return false end
if ARGV[3] ~= '' and now - seen <= tonumber(ARGV[3])
    and redis.call('PUBSUB', 'NUMSUB', ARGV[2])[2] > 0 then return false end
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
for _, entry in ipairs(redis.call('SMEMBERS', KEYS[4])) do
  local group, operation = string.match(entry, '^(.*)\\n(.*)$')
  redis.call('SREM', operation, ARGV[1] .. ' ' .. group)
end
redis.call('DEL', KEYS[4])
if redis.call('EXISTS', KEYS[3]) == 0 then return false end
if redis.call('XLEN', KEYS[3]) == 0 then redis.call('DEL', KEYS[3]) return false end
local last = '0-0'
for _, group in ipairs(redis.call('XINFO', 'GROUPS', KEYS[3])) do
  for i = 1, #group, 2 do
    if group[i] == 'last-delivered-id' then last = group[i + 1] end
  end
end
redis.call('RENAME', KEYS[3], KEYS[5])
redis.call('PEXPIRE', KEYS[5], 600000)
return last
"""
)

SCRIPTS = {
    name: Script(source)
    for name, source in {
        "dispatch": DISPATCH,
        "done": DONE,
        "enroll": ENROLL,
        "register": REGISTER,
        "unregister": UNREGISTER,
        "beat": BEAT,
        "reap": REAP,
    }.items()
}


def command(script: str, keys: list[str], *arguments: Argument) -> bytes:
    """Return the packed command that runs a script."""
    return pack("EVALSHA", SCRIPTS[script].digest, len(keys), *keys, *arguments)


def run(commands: Pipeline, script: str, keys: list[str], *arguments: Argument) -> asyncio.Future[Any]:
    """Run a script, and return the future of its result."""
    return commands.ask(command(script, keys, *arguments))
