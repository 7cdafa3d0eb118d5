"""What Redis does as one step: scripts over the keys of `trunkline.routes.storage.redis`, always given in this order."""

from __future__ import annotations

KEYS = ("routes", "routes:configs", "routes:uses", "routes:ids", "routes:removed", "routes:revision", "routes:tenants")

_OPENING = """
local routes, configs, uses, ids, removed, counter, tenants = unpack(KEYS)
local time = redis.call('TIME')
local moment = string.format('%d.%06d', time[1], time[2])
"""

# ARGV: the changes {field, hash ('' removes), the rest of the record, the revision expected or -1}, bodies by hash, and the
# fields of tenants that must be there.
# A record is never written by cjson, which keeps 14 digits of a number.
CHANGE = (
    _OPENING
    + """
local changes, bodies = cmsgpack.unpack(ARGV[1]), cmsgpack.unpack(ARGV[2])
for place, tenant in ipairs(cmsgpack.unpack(ARGV[3])) do
    if redis.call('HEXISTS', tenants, tenant) == 0 then
        return {2, place}
    end
end
local record = '^{"revision":(%d+),"created":([%d.]+),"modified":([%d.]+),(.*)}$'
local before = {}
for place, change in ipairs(changes) do
    local found = redis.call('HGET', routes, change[1])
    local at = 0
    if found then
        local revision, created, modified, rest = found:match(record)
        at = tonumber(revision)
        before[place] = {at, tonumber(created), tonumber(modified), rest, created, cjson.decode(found).hash}
    end
    if change[4] >= 0 and change[4] ~= at then
        return {0, place, found and string.format('%.0f', at) or '0'}
    end
end

local mine = math.max(tonumber(redis.call('GET', counter) or '0') + 1, time[1] * 1000 + math.floor(time[2] / 1000))
local revision = string.format('%.0f', mine)
local moved = false

local function leave(hash)
    if redis.call('HINCRBY', uses, hash, -1) == 0 then
        redis.call('HDEL', uses, hash)
        redis.call('HDEL', configs, hash)
    end
end

local function put(field, hash, rest, old)
    if redis.call('HINCRBY', uses, hash, 1) == 1 then
        redis.call('HSET', configs, hash, bodies[hash])
    end
    local created = old and old[5] or moment
    local stamps = '{"revision":' .. revision .. ',"created":' .. created .. ',"modified":' .. moment .. ','
    redis.call('HSET', routes, field, stamps .. rest .. '}')
    if old then
        leave(old[6])
    else
        redis.call('ZADD', ids, 0, field)
        redis.call('HDEL', removed, field)
    end
end

local function remove(field, old)
    redis.call('HDEL', routes, field)
    redis.call('ZREM', ids, field)
    redis.call('HSET', removed, field, revision .. ' ' .. moment)
    leave(old[6])
end

local others = {}
for place, change in ipairs(changes) do
    local field, hash, rest = change[1], change[2], change[3]
    local old = before[place]
    if hash == '' then
        if old then
            remove(field, old)
            moved = true
        end
    elseif old and old[4] == rest then
        others[#others + 1] = {place, old[1], old[2], old[3]}
    else
        put(field, hash, rest, old)
        moved = true
        if old then
            others[#others + 1] = {place, mine, old[2], tonumber(moment)}
        end
    end
end
if moved then
    redis.call('SET', counter, revision)
end
return {1, cmsgpack.pack({mine, tonumber(moment), others})}
"""
)

# ARGV: the fields, or the first and the last of a range of them.
READ = (
    _OPENING
    + """
local fields = ARGV[2] and redis.call('ZRANGEBYLEX', ids, ARGV[1], ARGV[2]) or cmsgpack.unpack(ARGV[1])
local found, bodies, known = {}, {}, {}
for _, field in ipairs(fields) do
    local record = redis.call('HGET', routes, field)
    if record then
        found[#found + 1] = field
        found[#found + 1] = record
        local hash = cjson.decode(record).hash
        if not known[hash] then
            known[hash] = true
            bodies[#bodies + 1] = hash
            bodies[#bodies + 1] = redis.call('HGET', configs, hash)
        end
    end
end
return {cmsgpack.pack(found), cmsgpack.pack(bodies)}
"""
)

# ARGV: the seconds for which a removal is remembered. What is told now and old enough is forgotten.
SCAN = (
    _OPENING
    + """
local gone = redis.call('HGETALL', removed)
for at = 1, #gone, 2 do
    if tonumber(gone[at + 1]:match(' (.*)$')) <= tonumber(moment) - tonumber(ARGV[1]) then
        redis.call('HDEL', removed, gone[at])
    end
end
return {redis.call('GET', counter) or '0', cmsgpack.pack(redis.call('HGETALL', routes)), cmsgpack.pack(gone)}
"""
)

# ARGV: the tenant's field, the first and the last of the range of its routes. One more key: its fragments.
REMOVE_TENANT = (
    _OPENING
    + """
local number = redis.call('ZLEXCOUNT', ids, ARGV[2], ARGV[3])
if number > 0 then
    return -number
end
redis.call('DEL', KEYS[8])
return redis.call('HDEL', tenants, ARGV[1])
"""
)
