"""What runs inside Redis: one script for each thing that must happen at once or not at all.

A budget in one window is a hash (`spent`, `held`, `used` = both together, `epoch`, `rebuilt_at`, `ready_at`) and a
sorted set of what is held ("id:amount", by the millisecond it expires). Amounts pass 2^53, which Lua's numbers
cannot count: they are added by HINCRBY (64 bits, 9.2 million dollars a window) and compared as decimal texts.
A limit per minute is a hash of half seconds. Redis' clock is the only clock.
"""

_COMMON = """
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local function above(a, b)
  if string.sub(a, 1, 1) == '-' then return false end
  if #a ~= #b then return #a > #b end
  return a > b
end
local function drop(hash, amount)
  redis.call('HINCRBY', hash, 'held', '-' .. amount)
  redis.call('HINCRBY', hash, 'used', '-' .. amount)
end
"""

# KEYS: hash and set of each budget, then one hash of each limit per minute.
# ARGV: id, milliseconds a hold lives, worst case, number of budgets, then limit and whether it only warns of each
#       budget, then limit and amount of each limit per minute.
ADMIT = (
    _COMMON
    + """
local id, worst, budgets = ARGV[1], ARGV[3], tonumber(ARGV[4])
local member = id .. ':' .. worst
local at = 4 + 2 * budgets
for i = 1, budgets do
  local ready = redis.call('HGET', KEYS[2 * i - 1], 'ready_at')
  if not ready then return {'missing', i} end
  if tonumber(ready) > now then return {'warming', i} end
end
local slice = math.floor(now / 500)
local used, epochs, over = {}, {}, {}
if budgets > 0 and redis.call('ZSCORE', KEYS[2], member) then
  for i = 1, budgets do
    used[i] = redis.call('HGET', KEYS[2 * i - 1], 'used')
    epochs[i] = redis.call('HGET', KEYS[2 * i - 1], 'epoch')
    over[i] = above(used[i], ARGV[3 + 2 * i]) and 1 or 0
  end
  return {'ok', slice, used, epochs, over}
end
for r = 1, #KEYS - 2 * budgets do
  local key = KEYS[2 * budgets + r]
  local limit, amount = tonumber(ARGV[at + 2 * r - 1]), tonumber(ARGV[at + 2 * r])
  local oldest = tonumber(redis.call('HGET', key, 'oldest') or slice)
  if slice - oldest > 500 then
    redis.call('DEL', key)
  elseif oldest < slice - 120 then
    for s = oldest, slice - 121 do
      local gone = redis.call('HGET', key, s)
      if gone then
        redis.call('HINCRBY', key, 'total', '-' .. gone)
        redis.call('HDEL', key, s)
      end
    end
    redis.call('HSET', key, 'oldest', slice - 120)
  end
  local total = tonumber(redis.call('HGET', key, 'total') or 0)
  if amount > limit then return {'rate', r, -1} end
  if total + amount > limit then
    local excess = total + amount - limit
    for s = slice - 120, slice do
      excess = excess - tonumber(redis.call('HGET', key, s) or 0)
      if excess <= 0 then return {'rate', r, (s + 121) * 500 - now} end
    end
    return {'rate', r, 0}
  end
end
for i = 1, budgets do
  local hash, held = KEYS[2 * i - 1], KEYS[2 * i]
  for _, gone in ipairs(redis.call('ZRANGEBYSCORE', held, '-inf', now, 'LIMIT', 0, 100)) do
    redis.call('ZREM', held, gone)
    drop(hash, string.match(gone, ':(%d+)$'))
  end
  redis.call('HINCRBY', hash, 'used', worst)
  used[i] = redis.call('HGET', hash, 'used')
  epochs[i] = redis.call('HGET', hash, 'epoch')
  over[i] = above(used[i], ARGV[3 + 2 * i]) and 1 or 0
  if over[i] == 1 and ARGV[4 + 2 * i] == '0' then
    for j = 1, i do redis.call('HINCRBY', KEYS[2 * j - 1], 'used', '-' .. worst) end
    return {'spent', i, redis.call('HGET', hash, 'spent'), redis.call('HGET', hash, 'held')}
  end
end
for i = 1, budgets do
  redis.call('HINCRBY', KEYS[2 * i - 1], 'held', worst)
  redis.call('ZADD', KEYS[2 * i], now + tonumber(ARGV[2]), member)
end
for r = 1, #KEYS - 2 * budgets do
  local key = KEYS[2 * budgets + r]
  redis.call('HINCRBY', key, slice, ARGV[at + 2 * r])
  redis.call('HINCRBY', key, 'total', ARGV[at + 2 * r])
  redis.call('HSETNX', key, 'oldest', slice)
  redis.call('PEXPIRE', key, 65000)
end
return {'ok', slice, used, epochs, over}
"""
)

# KEYS: as ADMIT (of the limits only those that count tokens), then the mark of an admission made without Redis.
# ARGV: id, worst case, cost, number of budgets, half second of the admission, correction of the tokens, what
#       time the cost was known, "1" if it was held here, then the epoch it was held in of each budget.
SETTLE = (
    _COMMON
    + """
local budgets = tonumber(ARGV[4])
local member = ARGV[1] .. ':' .. ARGV[2]
local first = true
if ARGV[8] == '0' then
  first = redis.call('SET', KEYS[#KEYS], 1, 'NX', 'PX', 60000) and true or false
end
for i = 1, budgets do
  local hash, held = KEYS[2 * i - 1], KEYS[2 * i]
  local removed = redis.call('ZREM', held, member) == 1
  if removed then drop(hash, ARGV[2]) end
  local epoch = redis.call('HGET', hash, 'epoch')
  local add = false
  if epoch then
    if removed then
      add = true
    elseif ARGV[8] == '0' or epoch ~= ARGV[8 + i] then
      -- Not held in these counters. If they were rebuilt well after the cost was known, the ledger had it.
      add = first and tonumber(ARGV[7]) > tonumber(redis.call('HGET', hash, 'rebuilt_at')) - 1000
    end
  end
  if add then
    redis.call('HINCRBY', hash, 'spent', ARGV[3])
    redis.call('HINCRBY', hash, 'used', ARGV[3])
  end
end
for k = 2 * budgets + 1, #KEYS - 1 do
  if redis.call('HEXISTS', KEYS[k], ARGV[5]) == 1 then
    redis.call('HINCRBY', KEYS[k], ARGV[5], ARGV[6])
    redis.call('HINCRBY', KEYS[k], 'total', ARGV[6])
  end
end
return 1
"""
)

# KEYS: hash and set of each budget. ARGV: id, milliseconds it still lives, worst case.
HOLD = (
    _COMMON
    + """
local epochs = {}
for i = 1, #KEYS / 2 do
  local hash = KEYS[2 * i - 1]
  epochs[i] = redis.call('HGET', hash, 'epoch') or ''
  if epochs[i] ~= '' then
    if redis.call('ZADD', KEYS[2 * i], 'NX', now + tonumber(ARGV[2]), ARGV[1] .. ':' .. ARGV[3]) == 1 then
      redis.call('HINCRBY', hash, 'held', ARGV[3])
      redis.call('HINCRBY', hash, 'used', ARGV[3])
    end
  end
end
return epochs
"""
)

# KEYS: hash of a budget. ARGV: what the ledger has, an epoch for new counters, milliseconds until those are
#       trusted, when they may be forgotten (milliseconds since 1970), what every process has told of the ledger.
RAISE = (
    _COMMON
    + """
local spent = redis.call('HGET', KEYS[1], 'spent')
if not spent then
  redis.call('HSET', KEYS[1], 'spent', ARGV[1], 'held', '0', 'used', ARGV[1], 'epoch', ARGV[2],
    'rebuilt_at', now, 'ready_at', now + tonumber(ARGV[3]))
  redis.call('PEXPIREAT', KEYS[1], ARGV[4])
elseif above(ARGV[5], spent) then
  redis.call('HSET', KEYS[1], 'spent', ARGV[5], 'used', redis.call('HGET', KEYS[1], 'held'))
  redis.call('HINCRBY', KEYS[1], 'used', ARGV[5])
end
return {redis.call('HGET', KEYS[1], 'used'), redis.call('HGET', KEYS[1], 'epoch')}
"""
)

# KEYS: the set of live processes. ARGV: this process, milliseconds until it counts as dead.
BEAT = (
    _COMMON
    + """
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZADD', KEYS[1], now + tonumber(ARGV[2]), ARGV[1])
redis.call('PEXPIRE', KEYS[1], 60000)
return redis.call('ZCARD', KEYS[1])
"""
)
