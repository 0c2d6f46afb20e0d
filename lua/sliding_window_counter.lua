-- Sliding window counter: the count of the current window and the share of the previous one's that a trailing window
-- still covers. Windows are aligned to the Unix epoch and half open. An estimate: it assumes that the previous
-- window's units were spread evenly, and can let nearly twice the limit into one trailing window.
--
-- Admits if previous * (W - elapsed) / W + current + cost <= limit. All but the first term are whole, so the first is
-- rounded up and nothing is lost.
--
-- State: string of 28 bytes, '>I7I7I7I7'
--   last      effective time of the last charge, µs; it names the current window
--   previous  units used in the window before, at most 999 999 999 999 999
--   current   units used in the current window, likewise
--   offset    effective time less Redis' time, µs
-- Expires at the end of the next window.

local sliding_window_counter = {}

local function sliding_window_counter_pack(limit)
  return struct.pack('>I7I7I7I7', limit.at, limit.previous, limit.current, limit.offset)
end

function sliding_window_counter.read(limit)
  local window = limit.window
  limit.at, limit.offset, limit.previous, limit.current = limit.now, 0, 0, 0
  local value = read_packed(limit.key, 28)
  if value then
    local last, previous, current, offset = struct.unpack('>I7I7I7I7', value)
    local at, held = effective(limit.now, last, offset)
    local windows_later = ((at - at % window) - (last - last % window)) / window
    if windows_later < 2 then
      if windows_later == 1 then
        previous, current = current, 0
      end
      limit.at, limit.offset, limit.previous, limit.current = at, held, previous, current
      limit.stepped = held > offset
    end
  end
  local share, rest = mul_div(limit.previous, window - limit.at % window, window)
  if rest > 0 then
    share = share + 1
  end
  limit.remaining = math.max(0, limit.limit - limit.current - share)
end

function sliding_window_counter.wait(limit, cost)
  local window = limit.window
  local to_next = window - limit.at % window
  local room = limit.limit - limit.current - cost
  if room >= 0 then
    -- In this window, once the previous one's share has shrunk to the room. There is such a share, else it would fit.
    return to_next - mul_div(room, window, limit.previous)
  end
  -- In the next window, where today's current count is the previous one and shrinks in its turn.
  return to_next + window - mul_div(limit.limit - cost, window, limit.current)
end

function sliding_window_counter.charge(limit)
  limit.current = limit.current + limit.cost
  limit.remaining = limit.remaining - limit.cost
  limit.life = 2 * limit.window - limit.at % limit.window
  write_packed(limit, sliding_window_counter_pack(limit))
end

function sliding_window_counter.hold(limit)
  hold_packed(limit, sliding_window_counter_pack(limit))
end
