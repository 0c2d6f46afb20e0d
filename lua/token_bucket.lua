-- Token bucket: holds up to `burst` units, refilled continuously with `limit` units a window.
--
-- What is kept is the deficit, the units missing from a full bucket, exactly: whole + fraction / window. In units of
-- 1 / window an elapsed µs refills exactly `limit` of them, so nothing is ever rounded, however often it is polled.
--
-- State: string of 28 bytes, '>I7I7I7I7'
--   whole     whole units of the deficit, at most 999 999 999 999 999
--   fraction  the rest of it in 1 / window units (the window in µs), below the window
--   last      effective time to which the deficit belongs, µs
--   offset    effective time less Redis' time, µs
-- Expires when the bucket is full. burst * window / limit is at most 3660 days, which bounds every quotient here.

local token_bucket = {}

local function token_bucket_pack(limit)
  return struct.pack('>I7I7I7I7', limit.whole, limit.fraction, limit.at, limit.offset)
end

-- µs until the deficit has shrunk by all but `units` of whole and fraction; rounded up, as time is.
local function token_bucket_refill(limit, units)
  local time, rest = mul_div(units, limit.window, limit.limit)
  return time + ceil_div(rest + limit.fraction, limit.limit)
end

function token_bucket.read(limit)
  limit.at, limit.offset, limit.whole, limit.fraction = limit.now, 0, 0, 0
  local value = read_packed(limit.key, 28)
  if value then
    local whole, fraction, last, offset = struct.unpack('>I7I7I7I7', value)
    local at, held = effective(limit.now, last, offset)
    -- A smaller burst bounds the deficit from `last` on, not from now: a wait that was promised then stays true.
    if whole >= limit.burst then
      whole, fraction = limit.burst, 0
    end
    -- Two units more than the deficit are a full bucket, rounded or not; only what is less is worth exactness.
    if limit.limit * (at - last) / limit.window < whole + 2 then
      local refilled, rest = mul_div(limit.limit, at - last, limit.window)
      whole, fraction = whole - refilled, fraction - rest
      if fraction < 0 then
        whole, fraction = whole - 1, fraction + limit.window
      end
      if whole > 0 or (whole == 0 and fraction > 0) then
        limit.at, limit.offset, limit.whole, limit.fraction = at, held, whole, fraction
        limit.stepped = held > offset
      end
    end
  end
  limit.remaining = math.max(0, limit.burst - limit.whole - (limit.fraction > 0 and 1 or 0))
end

function token_bucket.wait(limit, cost)
  return token_bucket_refill(limit, limit.whole + cost - limit.burst)
end

function token_bucket.charge(limit)
  limit.whole = limit.whole + limit.cost
  limit.remaining = limit.remaining - limit.cost
  limit.life = token_bucket_refill(limit, limit.whole)
  write_packed(limit, token_bucket_pack(limit))
end

function token_bucket.hold(limit)
  hold_packed(limit, token_bucket_pack(limit))
end
