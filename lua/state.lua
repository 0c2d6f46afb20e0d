-- What the states of all algorithms have in common: effective time, packed values, expiry.

-- The effective time of a state, and its offset from Redis' clock. When the clock has gone back behind the time of
-- the state, the offset grows by the step: time stands still there, then runs on, and the state keeps its age.
local function effective(now, last, offset)
  local at = now + offset
  if at < last then
    return last, offset + (last - at)
  end
  return at, offset
end

-- The reply of a reading command, or nil if the key holds another type. Every other error is raised.
local function read(command, key, ...)
  local reply = redis.pcall(command, key, ...)
  if type(reply) == 'table' and reply.err then
    if string.sub(reply.err, 1, 9) ~= 'WRONGTYPE' then
      redis.call(command, key, ...) -- raises the error with its own code, on every version of Redis
    end
    return nil
  end
  return reply
end

-- The packed value of a key, or nil if there is none of this length: see "Foreign values" in README.md.
local function read_packed(key, bytes)
  local value = read('GET', key)
  if value and #value == bytes then
    return value
  end
  return nil
end

-- The millisecond through which a key must live whose content expires `life` µs from now. Counted from the script's
-- own time and not from the moment the command runs, so that no key goes a microsecond before its content. Redis
-- keeps a key until its expiry has passed, so the sum is late by less than 2 ms and never early.
local function expiry_ms(now, life)
  return digits(math.floor(now / 1000) + ceil_div(life, 1000))
end

-- Writes a charged state, whose content expires `life` µs from now, and its expiry in one command.
local function write_packed(limit, value, life)
  redis.call('SET', limit.key, value, 'PXAT', expiry_ms(limit.now, life))
end

-- Writes a state whose offset grew, and nothing else: what it holds is not charged, so its expiry stays.
local function hold_packed(limit, value)
  redis.call('SET', limit.key, value, 'KEEPTTL')
end
