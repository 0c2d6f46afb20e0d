-- Sliding window log: every admission is an event of its own and is remembered for one window. Exact: no trailing
-- window ever holds more than the limit.
--
-- State: list. Element 0 is the header, 14 bytes, '>I7I7'
--   offset     effective time less Redis' time, µs
--   base       cumulated cost before the first event of the list
-- and each further element is one event, oldest first, 8 to 14 bytes, '>I7I<n>'
--   time       effective time of the admission, µs
--   cumulated  cost of all events up to and with this one, in as few bytes as it needs
-- Cumulated costs are modulo 2^52. Differences of them are what is used: those of live events are at most
-- 999 999 999 999 999, so wrapping around never shows and nothing is ever rewritten to avoid it.
-- The last charge is the time of the last event. Expires a window after it.
--
-- A charge trims what has left the window, so many events at most that Redis never stops for it; what is left over waits
-- for the next charges, and searches step over it in O(log n) probes. A log of which nothing is left goes as a whole, in the
-- background.

local function sliding_window_log()
  local CUMULATED_BELOW = 4503599627370496 -- 2^52; with a cost added still below 2^53
  -- Far more than the one event that a charge adds, so that a backlog shrinks; few enough to be a matter of microseconds.
  local TRIMMED_AT_MOST = 500

  local function pack_event(time, cumulated)
    local bytes, bound = 1, 256
    while cumulated >= bound do
      bytes, bound = bytes + 1, bound * 256
    end
    return struct.pack('>I7I' .. bytes, time, cumulated)
  end

  local function is_event(element)
    return #element > 7 and #element < 15
  end

  -- Time and cumulated cost of an event. What is none, in a list that somebody else wrote, has left long ago: an error
  -- would fail every call of that client.
  local function unpack_event(element)
    if not is_event(element) then
      return 0, 0
    end
    return struct.unpack('>I7I' .. (#element - 7), element)
  end

  -- The first event after index `low` for which `reached(time, cumulated)` holds. It holds for all events from some
  -- index on, not at `low` and surely at the last. Doubles its steps from `low`, where the answer mostly is, and never
  -- passes the middle. Returns the event's index, time and cumulated cost, and the cumulated cost before it.
  local function search(limit, low, before, reached)
    local high, time, cumulated = redis.call('LLEN', limit.key) - 1, limit.last, limit.total
    local step = 1
    while high - low > 1 do
      local probe = math.min(low + step, math.floor((low + high) / 2))
      local probe_time, probe_cumulated = unpack_event(redis.call('LINDEX', limit.key, probe))
      if reached(probe_time, probe_cumulated) then
        high, time, cumulated, step = probe, probe_time, probe_cumulated, math.huge
      else
        low, before, step = probe, probe_cumulated, step * 2
      end
    end
    return high, time, cumulated, before
  end

  return {
    read = function(limit)
      local key = limit.key
      local used = 0
      limit.at, limit.offset, limit.total = limit.now, 0, 0
      limit.live = false -- whether any event is live; only then the fields set with it below are
      local head = read('LRANGE', key, 0, 2)
      limit.exists = not head or #head > 0
      local newest = head and #head > 1 and redis.call('LINDEX', key, -1)
      if newest and #head[1] == 14 and is_event(head[2]) and is_event(newest) then
        local offset, base = struct.unpack('>I7I7', head[1])
        local last, total = unpack_event(newest)
        local at, held = effective(limit.now, last, offset)
        local left = at - limit.window -- an event of this time or before has left: windows are half open
        if last > left then
          limit.live, limit.at, limit.offset, limit.stepped = true, at, held, held > offset
          limit.total, limit.last = total, last
          local first, before = 1, base -- the oldest live event, and the cumulated cost before it
          local time, cumulated = unpack_event(head[2])
          if time <= left then
            -- The next one is at hand: mostly one has left since the last charge. There is one, the newest is live.
            first, before = 2, cumulated
            time, cumulated = unpack_event(head[3])
          end
          if time <= left then
            first, time, cumulated, before = search(
              limit, 2, cumulated, function(probe_time) return probe_time > left end)
          end
          -- What a charge trims, and the cumulated cost before what it leaves.
          limit.trimmed, limit.base = first - 1, before
          if limit.trimmed > TRIMMED_AT_MOST then
            local _
            _, limit.base = unpack_event(redis.call('LINDEX', key, TRIMMED_AT_MOST))
            limit.trimmed = TRIMMED_AT_MOST
          end
          limit.stored_base = base
          limit.first, limit.first_time, limit.first_cumulated, limit.before = first, time, cumulated, before
          used = (total - before) % CUMULATED_BELOW
        end
      end
      limit.used = used
      limit.remaining = math.max(0, limit.limit - used)
    end,

    wait = function(limit, cost)
      -- The units that must leave first, and the event that completes them.
      local leaving = limit.used + cost - limit.limit
      local before, time = limit.before, limit.first_time
      if (limit.first_cumulated - before) % CUMULATED_BELOW < leaving then
        local _
        _, time = search(
          limit, limit.first, limit.first_cumulated,
          function(_, cumulated) return (cumulated - before) % CUMULATED_BELOW >= leaving end)
      end
      -- Above 0 by itself, unless a foreign element was met.
      return math.max(1, time + limit.window - limit.at)
    end,

    charge = function(limit)
      local key = limit.key
      local total = (limit.total + limit.cost) % CUMULATED_BELOW
      local event = pack_event(limit.at, total)
      if limit.live then
        if limit.trimmed > 0 then
          redis.call('LTRIM', key, limit.trimmed, -1) -- the last that goes makes room for the header
        end
        if limit.trimmed > 0 or limit.stepped then
          redis.call('LSET', key, 0, struct.pack('>I7I7', limit.offset, limit.base))
        end
        redis.call('RPUSH', key, event)
      else
        if limit.exists then
          redis.call('UNLINK', key)
        end
        redis.call('RPUSH', key, struct.pack('>I7I7', 0, 0), event)
        limit.before, limit.first_time, limit.first_cumulated = 0, limit.at, total
      end
      redis.call('PEXPIREAT', key, expiry_ms(limit.now, limit.window))
      limit.used = limit.used + limit.cost
      limit.remaining = limit.remaining - limit.cost
    end,

    hold = function(limit)
      redis.call('LSET', limit.key, 0, struct.pack('>I7I7', limit.offset, limit.stored_base))
    end,
  }
end
