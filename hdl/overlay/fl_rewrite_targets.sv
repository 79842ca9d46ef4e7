// SPDX-License-Identifier: Apache-2.0 OR MIT
// Written fields: the word of the header vector that each field takes, among those that can hold it (fl_reach_pkg).
//
// Latency: 2 cycles.
// Throughput: one packet a cycle.
// Handshake: none.
module fl_rewrite_targets
  import fl_parse_pkg::*;
  import fl_reach_pkg::*;
  import fl_config_pkg::*;
#(
    parameter int unsigned Words = 32
) (
    input  logic                   clk_i,
    input  config_t                config_i,
    input  logic                   bank_i,
    input  logic [Words-1:0][31:0] words_i,
    input  logic [Words-1:0]       written_i,
    // By source_e: the new value of a field, and whether it is written.
    output words_t                 values_o,
    output logic [Sources-1:0]     written_o
);

  typedef struct packed {
    logic       is_used;
    logic       unused;
    logic [4:0] word;
  } target_t;

  // Widths of the fields that can be written; 0 for all others.
  function automatic int unsigned width_of(source_e source);
    case (source)
      Slot0, Slot1, Slot2, Slot3, Slot4, Slot5, Slot6, Slot7, EthDst0, EthSrc0, IpSrc0, IpSrc1, IpSrc2, IpSrc3,
      IpDst0, IpDst1, IpDst2, IpDst3, Ipv6FragId, TcpSeq, TcpAck: return 32;
      MplsLabel, Mpls2Label, Mpls3Label, Mpls4Label, Ipv6FlowLabel: return 20;
      EthDst1, EthSrc1, Ipv4Id, L4Sport, L4Dport, TcpWindow, TcpUrgent, IcmpxId, IcmpxSeq: return 16;
      VlanId, Vlan2Id: return 12;
      MplsTtl, Mpls2Ttl, Mpls3Ttl, Mpls4Ttl, IpTos, IpTtl, TcpFlags, IcmpxType, IcmpxCode: return 8;
      VlanPcp, Vlan2Pcp, MplsTc, Mpls2Tc, Mpls3Tc, Mpls4Tc: return 3;
      VlanDei, Vlan2Dei: return 1;
      default: return 0;
    endcase
  endfunction

  // The words that can hold the source.
  function automatic logic [Words-1:0] words_of(source_e source);
    logic [Words-1:0] words;
    words = '0;
    for (int unsigned word = 0; word < Words; word++) begin
      for (int unsigned k = 1; k < Choices; k++) begin
        if (Reach[word/2][k] == source) words[word] = 1'b1;
      end
    end
    return words;
  endfunction

  logic [Words-1:0][31:0] words_q;
  logic [Words-1:0]       written_q;

  always_ff @(posedge clk_i) begin
    words_q   <= words_i;
    written_q <= written_i;
  end

  for (genvar i = 0; i < Sources; i++) begin : gen_source
    localparam int unsigned Width = width_of(source_e'(i));

    if (Width > 0) begin : gen_target
      localparam logic [Words-1:0] Reached = words_of(source_e'(i));
      target_t          target;
      logic [Words-1:0] selected_d, selected_q;
      logic [Width-1:0] value, value_q;
      logic             is_written_q;

      fl_config_word #(.Unit(TargetUnit), .Index(16'(i)), .Width($bits(target_t))) u_target (
          .clk_i, .config_i, .bank_i, .data_o(target));

      always_comb begin
        selected_d = '0;
        value = '0;
        for (int unsigned word = 0; word < Words; word++) begin
          if (Reached[word]) begin
            selected_d[word] = target.is_used && target.word == 5'(word);
            if (selected_q[word]) value |= words_q[word][Width-1:0];
          end
        end
      end

      always_ff @(posedge clk_i) begin
        selected_q   <= selected_d;
        value_q      <= value;
        is_written_q <= (selected_q & written_q) != '0;
      end

      assign values_o[i] = 32'(value_q);
      assign written_o[i] = is_written_q;

      logic unused;
      assign unused = target.unused;
    end else begin : gen_none
      assign values_o[i] = '0;
      assign written_o[i] = 1'b0;
    end
  end

  if (Words == 0 || Words > 2 * Pairs) begin : gen_bad_words
    $error("Words is %0d, expected 1 to %0d", Words, 2 * Pairs);
  end

endmodule
