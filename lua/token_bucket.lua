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

local function token_bucket()
  local function pack(limit)
    return struct.pack('>I7I7I7I7', limit.whole, limit.fraction, limit.at, limit.offset)
  end

  -- µs to refill so many whole units and the fraction; rounded up, as time is.
  local function refill(limit, units)
    local time, rest = mul_div(units, limit.window, limit.limit)
    return time + ceil_div(rest + limit.fraction, limit.limit)
  end

  return {
    read = function(limit)
      local at, offset, whole, fraction = limit.now, 0, 0, 0
      local value = read_packed(limit.key, 28)
      if value then
        local units, rest, last, before = struct.unpack('>I7I7I7I7', value)
        local here, held = effective(at, last, before)
        -- A smaller burst bounds the deficit from `last` on, not from now: a wait that was promised then stays true.
        if units >= limit.burst then
          units, rest = limit.burst, 0
        end
        -- Two units more than the deficit are a full bucket, rounded or not; only what is less is worth exactness.
        if limit.limit * (here - last) / limit.window < units + 2 then
          local refilled, refilled_rest = mul_div(limit.limit, here - last, limit.window)
          units, rest = units - refilled, rest - refilled_rest
          if rest < 0 then
            units, rest = units - 1, rest + limit.window
          end
          if units > 0 or (units == 0 and rest > 0) then
            at, offset, whole, fraction = here, held, units, rest
            limit.stepped = held > before
          end
        end
      end
      limit.at, limit.offset, limit.whole, limit.fraction = at, offset, whole, fraction
      limit.remaining = math.max(0, limit.burst - whole - (fraction > 0 and 1 or 0))
    end,

    wait = function(limit, cost)
      return refill(limit, limit.whole + cost - limit.burst)
    end,

    charge = function(limit)
      limit.whole = limit.whole + limit.cost
      limit.remaining = limit.remaining - limit.cost
      write_packed(limit, pack(limit), refill(limit, limit.whole))
    end,

    hold = function(limit)
      hold_packed(limit, pack(limit))
    end,
  }
end
