-- Calendar window: a fixed window that is a day, a week or a month of some time zone. Redis knows no calendar, so the
-- caller passes the edges of three windows in a row, those before, around and after its own time; this picks one by
-- Redis' time. Outside all three nothing is decided, see check.lua.
--
-- A count belongs to the window whose end it stores. It stands until its effective time has come there, whichever
-- windows are passed: where the clock was set back it may be a window that is not among them.
--
-- State: string of 28 bytes, '>I7I7I7I7'
--   last     effective time of the last charge, µs
--   count    units used in the window, at most 999 999 999 999 999
--   offset   effective time less Redis' time, µs
--   ends     end of the window, effective time, µs
-- Expires at the end of the window.

-- `position` is that of the last string in ARGV before the edges of the first limit of this algorithm.
local function calendar_window(position)
  local function pack(limit)
    return struct.pack('>I7I7I7I7', limit.at, limit.count, limit.offset, limit.ends)
  end

  local function wait(limit)
    return limit.ends - limit.at
  end

  -- The end of the window that a time lies in, or nil outside all of them. Takes the edges of the next limit.
  local function pick(time)
    local first = position + 1
    position = position + 4
    if time < tonumber(ARGV[first]) then
      return nil
    end
    for i = first + 1, position do
      local edge = tonumber(ARGV[i])
      if time < edge then
        return edge
      end
    end
    return nil
  end

  local calendar
  calendar = {
    outside = false,

    read = function(limit)
      local at, offset, used, ends = limit.now, 0, 0, pick(limit.now)
      if not ends then
        calendar.outside, limit.remaining = true, 0
        return
      end
      local value = read_packed(limit.key, 28)
      if value then
        local last, count, before, stored = struct.unpack('>I7I7I7I7', value)
        local here, held = effective(at, last, before)
        if here < stored then
          at, offset, used, ends = here, held, count, stored
          limit.stepped = held > before
        end
      end
      limit.at, limit.offset, limit.count, limit.ends = at, offset, used, ends
      limit.remaining = math.max(0, limit.limit - used)
    end,

    wait = wait,

    charge = function(limit)
      limit.count = limit.count + limit.cost
      limit.remaining = limit.remaining - limit.cost
      write_packed(limit, pack(limit), wait(limit))
    end,

    hold = function(limit)
      hold_packed(limit, pack(limit))
    end,
  }
  return calendar
end
